// Bits of a word, by threads of a kernel.
#pragma once

#include <cstdint>

#include "polypath/device/platform.cuh"

namespace polypath::device::detail {

/// The place of the one of `bits` that has `rank` ones below it; there is one.
POLYPATH_DEVICE unsigned select_bit(std::uint32_t bits, unsigned rank) {
  unsigned place = 0;
  POLYPATH_UNROLL
  for (unsigned half = 16; half > 0; half /= 2) {
    const unsigned low = popcount(bits >> place & ((1U << half) - 1));
    if (rank >= low) {
      rank -= low;
      place += half;
    }
  }
  return place;
}

}  // namespace polypath::device::detail
