// How a transfer from or to pageable host memory goes: CPU threads copy between the program's
// memory and pinned slots, and chunks go from there over routes. The host's memory is one more leg,
// whose rate depends on the number of threads. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "plan/plan.hpp"

namespace polypath {

/// Bytes of one pinned slot of `threads` copy threads; it holds one chunk. Chunks of 2 MiB go a
/// quarter faster than chunks of 1 MiB to a GPU, and half as fast again from one (4 x H200, 16
/// threads); with more than 32 threads the slots would take more memory than they may.
constexpr std::uint64_t pageable_slot_bytes(int threads) noexcept {
  constexpr int kMaxWithLargeSlots = 32;
  return threads > kMaxWithLargeSlots ? kMiB : 2 * kMiB;
}
/// Slots of each copy thread: one is filled while another one is sent.
inline constexpr int kPageableSlots = 2;
/// No transfer of fewer bytes is ever taken from the driver.
inline constexpr std::uint64_t kMinPageable = 128 * kKiB;

/// What copy threads do.
enum class ThreadWork : std::uint8_t { to_gpu, from_gpu, read };  // read: a file, to a GPU

struct PageablePlan {
  Plan plan;                         ///< of one transfer; native() where the driver's copy is best
  int threads = 0;                   ///< that take part
  std::uint64_t chunk_bytes = 0;     ///< of all chunks but the last
  double host_gbps = 0;              ///< what the threads reach at the host's memory
  std::vector<int> route_of_thread;  ///< index into the plan's routes, by thread
  /// To these GPUs the same bytes go as well, from the GPU that each route leads over.
  std::vector<int> further_gpus = {};

  [[nodiscard]] bool native() const noexcept { return threads == 0; }
  [[nodiscard]] const std::vector<RouteShare>& routes() const noexcept {
    return plan.transfers.front().routes;
  }
};

/// What the driver's own copy may take where the plan says `native_us`: the memory may be cached.
double fastest_native_us(const Request& request, double native_us) noexcept;

/// What `threads` copy threads reach at the host's memory, GB/s.
double host_copy_gbps(const Costs& costs, ThreadWork what, int threads) noexcept;

/// The plan that is predicted to end first. `pinned`: the plan of a large transfer between the same
/// memories, were the host's pinned: its routes and their rates. `threads`: that there are.
/// `is_file`: the host's side is a file in the page cache.
PageablePlan make_pageable_plan(const Node& node, const Request& request,
                                const TransferPlan& pinned, int threads, bool is_file = false);

/// The least number of bytes that is not left to the driver; 0: there is none.
std::uint64_t smallest_pageable(const Node& node, Request request, const TransferPlan& pinned,
                                int threads);

}  // namespace polypath
