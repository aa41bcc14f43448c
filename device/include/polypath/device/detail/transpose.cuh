// Words among neighbouring threads of a warp: what each thread has of its own item becomes a part
// of the item of every thread, so that a warp stores and loads whole lines.
#pragma once

#include <cstdint>

#include "polypath/device/platform.cuh"

namespace polypath::device::detail {

/// all[p] of thread t to all[t] of thread p, among kCount neighbours, a power of two; of each its
/// `data[0]` to `data[kWords - 1]`. Called by a whole warp.
template <unsigned kWords, unsigned kCount, typename Part>
POLYPATH_DEVICE void transpose(Part (&all)[kCount]) {
  POLYPATH_UNROLL
  for (unsigned step = kCount / 2; step > 0; step /= 2) {
    const bool is_upper = (rank_in_warp() & step) != 0;
    POLYPATH_UNROLL
    for (unsigned low = 0; low < kCount; ++low) {
      if ((low & step) != 0) continue;
      POLYPATH_UNROLL
      for (unsigned word = 0; word < kWords; ++word) {
        std::uint32_t& a = all[low].data[word];
        std::uint32_t& b = all[low | step].data[word];
        const std::uint32_t other = warp_shuffle_xor(is_upper ? a : b, step);
        (is_upper ? a : b) = other;
      }
    }
  }
}

}  // namespace polypath::device::detail
