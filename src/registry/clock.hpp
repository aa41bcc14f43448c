// The clock by which flights end: the same one in all processes of a machine.
#pragma once

#include <cstdint>
#include <ctime>

namespace polypath {

/// CLOCK_MONOTONIC, nanoseconds.
inline std::uint64_t monotonic_ns() noexcept {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace polypath
