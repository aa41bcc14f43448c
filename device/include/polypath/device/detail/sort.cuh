// Sorts numbers that a warp holds in registers, or a block in shared memory: Batcher's bitonic
// network, all threads at once.
#pragma once

#include <cstdint>

#include "polypath/device/group.cuh"
#include "polypath/device/platform.cuh"

namespace polypath::device::detail {

/// One step of it: numbers that are `step` apart, of runs of `run`.
template <unsigned kRows, unsigned kEach>
POLYPATH_DEVICE void sort_lanes(std::uint32_t (&rows)[kRows][kEach], unsigned run, unsigned step) {
  const unsigned place = rank_in_warp() * kEach;
  const bool takes_least = ((place & run) == 0) == ((place & step) == 0);
  POLYPATH_UNROLL
  for (unsigned row = 0; row < kRows; ++row) {
    POLYPATH_UNROLL
    for (unsigned i = 0; i < kEach; ++i) {
      const std::uint32_t own = rows[row][i];
      const std::uint32_t other = warp_shuffle_xor(own, step / kEach);
      rows[row][i] = (own < other) == takes_least ? own : other;
    }
  }
}
/// The steps of a run that stay in each lane.
template <unsigned kRows, unsigned kEach>
POLYPATH_DEVICE void sort_in_lanes(std::uint32_t (&rows)[kRows][kEach], unsigned run) {
  const unsigned place = rank_in_warp() * kEach;
  POLYPATH_UNROLL
  for (unsigned step = kEach / 2; step > 0; step /= 2) {
    if (step >= run) continue;
    POLYPATH_UNROLL
    for (unsigned row = 0; row < kRows; ++row) {
      POLYPATH_UNROLL
      for (unsigned i = 0; i < kEach; ++i) {
        if ((i & step) != 0) continue;
        const bool rises = ((place + i) & run) == 0;
        const std::uint32_t value = rows[row][i];
        const std::uint32_t other = rows[row][i | step];
        const bool stays = (value < other) == rises;
        rows[row][i] = stays ? value : other;
        rows[row][i | step] = stays ? other : value;
      }
    }
  }
}

/// Each row by itself. After it numbers rise from lane to lane, and within a lane: the k-th of all
/// is number k % kEach of lane k / kEach. By a warp.
template <unsigned kRows, unsigned kEach>
POLYPATH_DEVICE void sort_in_warp(std::uint32_t (&rows)[kRows][kEach]) {
  static_assert((kEach & (kEach - 1)) == 0, "of each lane a power of two");
  if constexpr (kEach <= 2) {
    POLYPATH_UNROLL
    for (unsigned run = 2; run <= kWarp * kEach; run *= 2) {
      POLYPATH_UNROLL
      for (unsigned step = run / 2; step >= kEach; step /= 2) sort_lanes(rows, run, step);
      sort_in_lanes(rows, run);
    }
  } else {
    POLYPATH_NO_UNROLL
    for (unsigned run = 2; run <= kWarp * kEach; run *= 2) {
      POLYPATH_NO_UNROLL
      for (unsigned step = run / 2; step >= kEach; step /= 2) sort_lanes(rows, run, step);
      sort_in_lanes(rows, run);
    }
  }
}

/// By a block; `count` is a power of two.
POLYPATH_DEVICE void sort_in_block(const this_block& block, std::uint32_t* numbers,
                                   std::uint32_t count) {
  for (std::uint32_t run = 2; run <= count; run *= 2) {
    for (std::uint32_t step = run / 2; step > 0; step /= 2) {
      for (std::uint32_t i = block.rank(); i < count / 2; i += block.size()) {
        const std::uint32_t at = i / step * 2 * step + i % step;
        const bool rises = (at & run) == 0;
        const std::uint32_t value = numbers[at];
        const std::uint32_t other = numbers[at + step];
        if ((value < other) == rises) continue;
        numbers[at] = other;
        numbers[at + step] = value;
      }
      block.sync();
    }
  }
}

}  // namespace polypath::device::detail
