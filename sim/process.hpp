// What other processes know this one by.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace polypath::sim {

struct Process {
  pid_t pid = 0;
  std::uint64_t id = 0;  ///< random: tells it from a later process with the same number
};

/// This one; the same at every call.
const Process& this_process();

/// The name of the memory file that `process` gave to its allocation `buffer_id`.
std::string shared_name(const Process& process, std::uint64_t buffer_id);

}  // namespace polypath::sim
