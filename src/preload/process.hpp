// What is done once a process, when its first replaced call comes: not before, because the shim is loaded into
// every program of a job, most of which never use CUDA.
#pragma once

namespace polypath::preload {

/// Prepares for the end of the process and for its children. Any thread, any number of times.
void begin_process() noexcept;

/// To be called after a library was opened that the shim needs until the end: what is written at exit is then
/// written before that library's own end.
void report_before_later_exits() noexcept;

}  // namespace polypath::preload
