// What a CUipcMemHandle holds: where to find a memory file of another process, and how to know it
// again. A dead process leaves no file: the file goes with its last user.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "cuda_api.hpp"

namespace polypath::sim {

// What other processes know this one by.

struct Process {
  pid_t pid = 0;
  std::uint64_t id = 0;  ///< random: tells it from a later process with the same number
};

/// This one; the same at every call.
const Process& this_process();

struct SharedMemory {
  Process process;
  int file = -1;  ///< its number in that process
  int device = 0;
  std::uint64_t buffer_id = 0;
  std::uint64_t bytes = 0;
};

CUipcMemHandle encode(const SharedMemory& memory);
/// Failure INVALID_HANDLE for what encode() cannot have made.
SharedMemory decode(const CUipcMemHandle& handle);

/// The name of the files of a process. The record in a file holds the rest of what a handle says:
/// no other file is taken for it.
std::string file_name(const Process& process);

}  // namespace polypath::sim
