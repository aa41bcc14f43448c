// What other processes know this one by.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace polypath::sim {

struct Process {
  pid_t pid = 0;
  std::uint64_t id = 0;  ///< random: tells it from a later process with the same number
};

/// This one; the same at every call.
const Process& this_process();

}  // namespace polypath::sim
