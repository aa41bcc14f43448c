// A Jacobi sweep that sends its outer rows itself, over polypath's backend (Listings 5 and 6 of the
// UNICONN paper). Each block sends the part of the outer rows that it has computed, as soon as it has,
// and waits for the part that its neighbour's block sends to it.
#pragma once

#include "../jacobi/arithmetic.h"
#include "jacobi2d_kernel.h"
#include "polypath/uniconn/device/polypath.cuh"

namespace uniconn_example {

POLYPATH_DEVICE void jacobi_sweep_and_send(const JacobiLaunch& its) {
  namespace uc = polypath::uniconn;
  namespace device = polypath::device;
  using It = uc::Coordinator<uc::PolypathBackend>;
  constexpr auto kBlock = uc::ThreadGroup::BLOCK;

  const std::uint32_t across = device::block_index() % its.across;
  const std::uint32_t down = device::block_index() / its.across;
  const std::uint32_t most_down = device::grid_size() / its.across;
  const std::uint64_t first_column = its.columns * across / its.across;
  const std::uint64_t behind_columns = its.columns * (across + 1) / its.across;
  const std::uint64_t first_row = its.rows * down / most_down + 1;
  const std::uint64_t behind_rows = its.rows * (down + 1) / most_down + 1;

  float largest = 0;
  for (std::uint64_t column = first_column + device::thread_index(); column < behind_columns;
       column += device::block_size()) {
    const bool fixed = column == 0 || column == its.columns - 1;
    const float* here = its.from + first_row * its.columns + column;
    float up = device::load(here - its.columns);
    float now = device::load(here);
    for (std::uint64_t row = first_row; row < behind_rows; ++row, here += its.columns) {
      const float below = device::load(here + its.columns);
      const float next =
          fixed ? now : jacobi::relax(up, below, device::load(here - 1), device::load(here + 1));
      device::store(its.to + row * its.columns + column, next);
      const float moved = jacobi::change(next, now);
      largest = moved > largest ? moved : largest;
      up = now;
      now = below;
    }
  }
  for (unsigned mask = device::kWarp / 2; mask > 0; mask /= 2) {
    const float other = device::warp_shuffle_xor(largest, mask);
    largest = other > largest ? other : largest;
  }
  if (device::lane_index() == 0)
    device::store(its.changes + device::block_index() * kJacobiWarps + device::warp_index(),
                  largest);

  auto* const comm = static_cast<uc::Communicator<uc::PolypathBackend>*>(its.comm);
  const std::uint64_t count = behind_columns - first_column;
  std::uint64_t* const before = its.words + across;
  std::uint64_t* const behind = before + its.across;
  float* const row = its.to + first_column;
  if (down == 0) {
    float* const dest = row + (its.rows_of_top + 1) * its.columns;
    if (its.waits != 0)
      It::Post<kBlock>(row + its.columns, dest, count, behind, its.value, its.top, comm);
    else
      It::Post<kBlock>(row + its.columns, dest, count, nullptr, 0, its.top, comm);
  }
  if (down == most_down - 1) {
    const float* const last = row + its.rows * its.columns;
    if (its.waits != 0)
      It::Post<kBlock>(last, row, count, before, its.value, its.bottom, comm);
    else
      It::Post<kBlock>(last, row, count, nullptr, 0, its.bottom, comm);
  }
  if (its.waits == 0) return;
  // All blocks have sent, or will without waiting for these.
  if (down == 0) It::Acknowledge<kBlock>(row, count, before, its.value, its.top, comm);
  if (down == most_down - 1)
    It::Acknowledge<kBlock>(row + (its.rows + 1) * its.columns, count, behind, its.value,
                            its.bottom, comm);
}

}  // namespace uniconn_example
