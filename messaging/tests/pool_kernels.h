// What the kernels of pool_kernels.cu are told, on the host and on the device.
#pragma once

#include <cstdint>

#include "polypath/device/pool_view.hpp"

namespace polypath::test {

enum class PoolMembers : std::uint32_t { thread, warp, one_of_warp, block };

/// Each thread allocates and frees at random, and writes down what was wrong.
struct PoolRow {
  static constexpr unsigned kHeld = 3;  ///< blocks of a thread at a time

  device::pool_view view;
  PoolMembers members;
  std::uint32_t seed;
  std::uint32_t rounds;
  std::uint32_t least, most;  ///< bytes asked for; `most` 0: sizes of all classes alike
  std::uint32_t counts;       ///< not 0: a block holds how often it was held, and nothing else
  std::uint32_t keeps;        ///< not 0: nothing is freed
  std::uint32_t* held;        ///< of each 64 bytes of the pool: whether a block's ends lie here
  std::uint32_t* times;       ///< of each 64 bytes: how often a block was held
  std::uint32_t* results;     ///< of each status: how often it was the answer; then kWrongs:
  /// Other bytes in a block; a block of two holders; one at a wrong place; a counter too old.
  static constexpr unsigned kStatuses = 16;
  static constexpr unsigned kWrongs = 4;
  std::uint32_t* handles;  ///< what each thread got last, for `keeps`
};

/// One call of free() by one thread.
struct PoolFree {
  device::pool_view view;
  std::uint32_t handle;
  std::uint32_t* result;
};

}  // namespace polypath::test
