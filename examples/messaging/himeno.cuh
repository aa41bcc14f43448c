// The pressure of Himeno's benchmark, cut into planes: all iterations in one kernel, which
// exchanges the planes at the cuts by a channel. Device code for GPUs (himeno_kernel.cu) and, in
// polypath's tests, for the host.
#pragma once

#include "himeno_run.h"
#include "polypath/device/channel.cuh"

namespace messaging_example {

namespace device = polypath::device;

/// All blocks of this GPU, each so often. False: one of them has failed.
POLYPATH_DEVICE bool meet(const HimenoRun& run, std::uint64_t& meetings, bool is_well) {
  const device::this_block block{};
  block.sync();
  ++meetings;
  bool has_arrived = is_well;
  if (block.is_leader()) {
    if (!is_well) device::red_add_release(run.gate + 1, std::uint64_t{1});
    const std::uint64_t arrivals = meetings * device::grid_size();
    device::atomic_add_acq_rel(run.gate, std::uint64_t{1});
    has_arrived = device::wait_until(
        run.view.wait_ctx, [&] { return device::load_acquire(run.gate) >= arrivals; },
        [&] { return device::wait_target{device::wait_error::kNobody, arrivals, 0}; });
    has_arrived = has_arrived && device::load_acquire(run.gate + 1) == 0;
  }
  return !block.any(block.is_leader() && !has_arrived);
}

/// One iteration: rows go to warps in turn.
POLYPATH_DEVICE void relax(const HimenoRun& run, const float* from, float* to, bool is_last) {
  const std::uint32_t warps = device::grid_size() * device::block_size() / device::kWarp;
  const std::uint32_t own =
      (device::block_index() * device::block_size() + device::thread_index()) / device::kWarp;
  const std::int64_t width = run.width;
  const std::int64_t plane = width * run.rows;
  const std::uint32_t inner = run.rows - 2;
  for (std::uint32_t row = own; row < run.planes * inner; row += warps) {
    const std::uint32_t i = row / inner;
    const std::uint32_t j = row % inner + 1;
    const float* const begin = from + (i + 1) * plane + j * width;
    float* const target = to + (i + 1) * plane + j * width;
    float sum = 0;
    for (std::int64_t k = 1 + device::rank_in_warp(); k < width - 1; k += kLanes) {
      const auto at = [&](int di, int dj, int dk) {
        return device::load(begin + di * plane + dj * width + k + dk);
      };
      const float change = himeno_change(at);
      sum = sum + change * change;
      device::store(target + k, at(0, 0, 0) + change);
    }
    for (std::uint32_t mask = kLanes / 2; is_last && mask > 0; mask /= 2)
      sum = sum + device::warp_shuffle_xor(sum, mask);
    if (is_last && device::rank_in_warp() == 0)
      device::store(run.row_sums + std::uint64_t{i} * run.rows + j, sum);
  }
}

/// This block's part of the planes at both cuts, to and from the neighbours.
POLYPATH_DEVICE bool exchange(const HimenoRun& run, device::channel& channel, float* grid,
                              std::uint32_t iteration) {
  const device::this_block block{};
  const std::uint64_t plane = std::uint64_t{run.width} * run.rows;
  const std::uint64_t first = plane * device::block_index() / device::grid_size();
  const std::uint64_t end = plane * (device::block_index() + 1) / device::grid_size();
  const std::uint64_t bytes = (end - first) * sizeof(float);
  const std::uint32_t rank = run.view.rank;
  device::request requests[4];
  device::status result = device::status::done;
  const auto begin = [&](unsigned number, bool sends, std::uint32_t peer, std::uint64_t of_plane,
                         std::uint32_t tag) {
    float* const at = grid + of_plane * plane + first;
    const device::status begun = sends
                                     ? channel.isend(block, peer, tag, at, bytes, requests[number])
                                     : channel.irecv(block, peer, tag, at, bytes, requests[number]);
    if (result == device::status::done) result = begun;
  };
  const std::uint32_t down = iteration * 2;
  const std::uint32_t up = iteration * 2 + 1;
  if (rank > 0) begin(0, false, rank - 1, 0, up);
  if (rank + 1 < run.view.ranks) begin(1, false, rank + 1, run.planes + 1, down);
  if (rank > 0) begin(2, true, rank - 1, 1, down);
  if (rank + 1 < run.view.ranks) begin(3, true, rank + 1, run.planes, up);
  for (const device::request& each : requests)
    if (result == device::status::done) result = channel.wait(block, each);
  return result == device::status::done;
}

POLYPATH_DEVICE void himeno(const HimenoRun& run) {
  const device::this_block block{};
  device::channel channel(block, run.view, device::block_index());
  std::uint64_t meetings = 0;
  bool is_well = true;
  for (std::uint32_t iteration = 0; iteration < run.iterations && is_well; ++iteration) {
    const bool is_last = iteration + 1 == run.iterations;
    relax(run, run.pressure[iteration % 2], run.pressure[1 - iteration % 2], is_last);
    if (is_last) break;
    is_well = meet(run, meetings, true);  // the planes at the cuts are whole
    if (is_well) is_well = exchange(run, channel, run.pressure[1 - iteration % 2], iteration);
    is_well = meet(run, meetings, is_well);  // the halos are
  }
  channel.leave(block);
  if (!is_well && block.is_leader()) device::red_add_relaxed(run.failed, 1U);
}

}  // namespace messaging_example
