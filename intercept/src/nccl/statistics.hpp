// Which calls were taken, which not and why; and the report of that, at the end of the process.
#pragma once

#include <cstddef>
#include <string>

#include "nccl/offload_policy.hpp"

namespace polypath::nccl {

/// Any thread.
void count_call(Operation operation, DeclineReason reason, std::size_t bytes) noexcept;
/// A communicator was made; `refusal` as of Communicator.
void count_communicator(const std::string& refusal) noexcept;

/// With POLYPATH_STATS set: it is written when the process ends, "text" to stderr, else to the file
/// of that name with ".nccl" before its ending, as the shim names its own.
void report_at_exit() noexcept;

}  // namespace polypath::nccl

extern "C" {

/// What was counted until now, as JSON: {"library": its path, "version", "other_libraries": those
/// that were left alone, "reproducible": bool, "communicators": how many, "taken": how many of
/// them,
/// "refusals": {why: how many}, "calls": {function: {"calls", "bytes", "taken", "to_nccl": {reason:
/// count}}}}. Up to `size` bytes into `text`, with a zero at the end; gives how many it has without
/// that.
[[gnu::visibility("default")]] std::size_t polypath_nccl_report(char* text,
                                                                std::size_t size) noexcept;
}
