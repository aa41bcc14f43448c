// What the kernels of pool_bench.cu are told, on the host and on the device.
#pragma once

#include <cstdint>

#include "polypath/device/pool_view.hpp"

namespace messaging_bench {

/// What threads did, added up over all.
struct PoolTally {
  std::uint64_t done;    ///< allocations and frees
  std::uint64_t failed;  ///< allocations that found nothing
  std::uint64_t wrong;   ///< bytes of a block that are not its holder's; frees that failed
};

/// Each thread has some places for blocks. In each round it picks one at random: what is there is
/// freed, and another block takes its place.
struct PoolRun {
  polypath::device::pool_view view;
  std::uint32_t rounds;
  std::uint32_t seed;
  PoolTally* tally;
};

}  // namespace messaging_bench
