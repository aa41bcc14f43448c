// What the kernels of collectives_kernels.cu are told, on the host and on the device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "polypath/device/collectives_view.hpp"

namespace polypath::test {

enum class CollectiveOp : std::uint32_t {
  barrier,
  broadcast,
  all_gather,
  all_reduce_float,
  all_reduce_half,
  all_reduce_int_max
};
enum class CollectiveGroup : std::uint32_t { thread, warp, block, grid };

/// One call, the same on all ranks. Before it the group copies `in` to where its part lies; after
/// it what came to `out`: places by bytes in the memory of each rank.
struct CollectiveCall {
  CollectiveOp op;
  CollectiveGroup group;
  std::int32_t root;
  std::uint32_t is_in_place;
  std::uint64_t count;  ///< elements
  std::uint64_t send;   ///< offsets in symmetric memory
  std::uint64_t recv;
  const unsigned char* in;
  std::uint64_t in_bytes;
  std::uint64_t fill;  ///< offset in this rank's memory
  std::uint64_t out_bytes;
  std::uint64_t look;  ///< offset in this rank's memory
  unsigned char* out;
};

struct CollectivesRow {
  device::collectives_view view;
  device::symmetric<unsigned char> memory;
  const CollectiveCall* calls;
  std::uint32_t count;
  std::uint32_t* aborted;  ///< threads for which a call was aborted
};

}  // namespace polypath::test
