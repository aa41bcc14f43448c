// What the shim saw, written once when the process ends, if POLYPATH_STATS asks for it: "text" (to stderr) or the
// name of a JSON file, in which %p is the process id; without it ".<pid>" goes before the ending.
// A process in which no replaced function was called writes nothing.
#pragma once

namespace polypath::preload {

/// Reads POLYPATH_STATS, and lets counting begin if it is set.
void read_report_setting() noexcept;

/// Writes the report unless that was done. Calls nothing of the CUDA driver.
void write_report() noexcept;

}  // namespace polypath::preload
