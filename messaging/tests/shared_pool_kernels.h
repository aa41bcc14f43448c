// What the kernels of shared_pool_kernels.cu are told, on the host and on the device.
#pragma once

#include <cstdint>

#include "polypath/device/pool_view.hpp"

namespace polypath::test {

/// A block that is given to another rank, and what it holds.
struct Parcel {
  std::uint32_t owner;
  std::uint32_t handle;
  std::uint32_t value;
};

/// Each warp of block 0 allocates blocks, fills them and gives them to the other ranks in turn;
/// each warp of block 1 takes as many, looks into them, fills them otherwise, and gives them back.
struct SharedPoolRow {
  device::shared_pool_view view;
  const device::queue_view* to;    ///< of parcels, for each rank
  const device::queue_view* from;  ///< parcels from each rank
  std::uint32_t rounds;
  std::uint32_t seed;
  std::uint32_t* wrong;     ///< how often
  std::uint32_t* returned;  ///< blocks that came back
};

/// One warp frees its threads' handles to `owner` `times` times, whether or not they are blocks.
struct SharedFreeRow {
  device::shared_pool_view view;
  std::int32_t owner;
  std::uint32_t times;
};

}  // namespace polypath::test
