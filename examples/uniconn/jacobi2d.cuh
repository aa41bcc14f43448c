// A Jacobi sweep that sends its outer rows itself, over polypath's backend (Listings 5 and 6 of the
// UNICONN paper). The blocks that have outer rows sweep those first and send them, so that they are
// under way while the others are swept. They wait at the end for what neighbours' blocks send.
#pragma once

#include "../jacobi/arithmetic.h"
#include "jacobi2d_kernel.h"
#include "polypath/uniconn/device/polypath.cuh"

namespace uniconn_example {

namespace device = polypath::device;

/// A thread on its way down a column.
struct JacobiColumn {
  const float* here;
  float* to;
  std::uint64_t columns;
  bool fixed;
  float up;
  float now;
};

/// The next kJacobiTogether rows, or only `count` of them; their largest change, or `largest`.
template <bool kOnlySome>
POLYPATH_DEVICE float sweep_together(JacobiColumn& column, std::uint64_t count, float largest) {
  float below[kJacobiTogether]{};
  float left[kJacobiTogether]{};
  float right[kJacobiTogether]{};
  POLYPATH_UNROLL
  for (unsigned i = 0; i < kJacobiTogether; ++i) {
    if (kOnlySome && i >= count) continue;
    // At the grid's edge one of them is of another row, and of no use.
    left[i] = device::load(column.here - 1);
    right[i] = device::load(column.here + 1);
    column.here += column.columns;
    below[i] = device::load(column.here);
  }
  POLYPATH_UNROLL
  for (unsigned i = 0; i < kJacobiTogether; ++i) {
    if (kOnlySome && i >= count) continue;
    const float next =
        column.fixed ? column.now : jacobi::relax(column.up, below[i], left[i], right[i]);
    device::store(column.to, next);
    column.to += column.columns;
    const float moved = jacobi::change(next, column.now);
    largest = moved > largest ? moved : largest;
    column.up = column.now;
    column.now = below[i];
  }
  return largest;
}

/// This block sweeps these rows and columns; the largest change of a thread's, or `largest`.
POLYPATH_DEVICE float sweep_rows(const JacobiLaunch& launch, std::uint64_t first_row,
                                 std::uint64_t behind_rows, std::uint64_t first_column,
                                 std::uint64_t behind_columns, float largest) {
  if (first_row >= behind_rows) return largest;
  for (std::uint64_t column = first_column + device::thread_index(); column < behind_columns;
       column += device::block_size()) {
    const std::uint64_t at = first_row * launch.columns + column;
    JacobiColumn way{launch.from + at, launch.to + at, launch.columns, false, 0, 0};
    way.fixed = column == 0 || column == launch.columns - 1;
    way.up = device::load(way.here - launch.columns);
    way.now = device::load(way.here);
    std::uint64_t left = behind_rows - first_row;
    for (; left >= kJacobiTogether; left -= kJacobiTogether)
      largest = sweep_together<false>(way, left, largest);
    if (left > 0) largest = sweep_together<true>(way, left, largest);
  }
  return largest;
}

POLYPATH_DEVICE void jacobi_sweep_and_send(const JacobiLaunch& launch) {
  namespace uc = polypath::uniconn;
  using It = uc::Coordinator<uc::PolypathBackend>;
  constexpr auto kBlock = uc::ThreadGroup::BLOCK;

  const std::uint32_t across = device::block_index() % launch.across;
  const std::uint32_t down = device::block_index() / launch.across;
  const std::uint32_t max_down = device::grid_size() / launch.across;
  const std::uint64_t first_column = launch.columns * across / launch.across;
  const std::uint64_t behind_columns = launch.columns * (across + 1) / launch.across;
  const std::uint64_t first_row = launch.rows * down / max_down + 1;
  const std::uint64_t behind_rows = launch.rows * (down + 1) / max_down + 1;
  const bool has_first = down == 0;
  const bool has_last = down == max_down - 1;
  // What is not sent; where there is but one row, it is the first.
  const std::uint64_t first_inner = first_row + (has_first ? 1 : 0);
  const std::uint64_t behind_inner = behind_rows - (has_last && first_inner < behind_rows ? 1 : 0);

  auto* const comm = static_cast<uc::Communicator<uc::PolypathBackend>*>(launch.comm);
  const std::uint64_t count = behind_columns - first_column;
  std::uint64_t* const before = launch.words + across;
  std::uint64_t* const behind = before + launch.across;
  float* const row = launch.to + first_column;

  float largest = 0;
  POLYPATH_NO_UNROLL
  for (unsigned part = 0; part < 3; ++part) {
    const std::uint64_t first = part == 0 ? first_row : part == 1 ? behind_inner : first_inner;
    const std::uint64_t end = part == 0 ? first_inner : part == 1 ? behind_rows : behind_inner;
    largest = sweep_rows(launch, first, end, first_column, behind_columns, largest);
    if (part != 1) continue;
    // The halo is read no more: neighbours may store to it once they have what is sent here.
    if (has_first) {
      float* const dest = row + (launch.rows_of_top + 1) * launch.columns;
      if (launch.waits != 0)
        It::Post<kBlock>(row + launch.columns, dest, count, behind, launch.value, launch.top, comm);
      else
        It::Post<kBlock>(row + launch.columns, dest, count, nullptr, 0, launch.top, comm);
    }
    if (has_last) {
      const float* const last = row + launch.rows * launch.columns;
      if (launch.waits != 0)
        It::Post<kBlock>(last, row, count, before, launch.value, launch.bottom, comm);
      else
        It::Post<kBlock>(last, row, count, nullptr, 0, launch.bottom, comm);
    }
  }

  for (unsigned mask = device::kWarp / 2; mask > 0; mask /= 2) {
    const float other = device::warp_shuffle_xor(largest, mask);
    largest = other > largest ? other : largest;
  }
  if (device::lane_index() == 0)
    device::store(launch.changes + device::block_index() * kJacobiWarps + device::warp_index(),
                  largest);
  if (launch.waits == 0) return;
  // All blocks have sent, or will without waiting for these.
  if (has_first) It::Acknowledge<kBlock>(row, count, before, launch.value, launch.top, comm);
  if (has_last)
    It::Acknowledge<kBlock>(row + (launch.rows + 1) * launch.columns, count, behind, launch.value,
                            launch.bottom, comm);
}

}  // namespace uniconn_example
