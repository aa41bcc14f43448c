// What functions that are passed on as they are jump to (trampolines.S).
#pragma once

#include <cstddef>

namespace polypath::nccl {

/// What trampolines.S has of each of them.
struct Slot {
  void* target;
  const char* name;
  std::size_t kind;
};
inline constexpr std::size_t kStatus = 0;
inline constexpr std::size_t kText = 1;
inline constexpr std::size_t kSums = 2;

}  // namespace polypath::nccl
