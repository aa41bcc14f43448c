// The kernels of matching that every order has: many queues at once, and one by the whole GPU in
// phases, a launch each. matching_ORDER.cu has them for GPUs, twins.cpp for the host.
//
//   POLYPATH_MATCH_KERNELS(mpi)    polypath_match_queues_mpi, polypath_match_grid_mpi,
//                                  polypath_match_outcome_mpi
//   POLYPATH_MATCH_TOGETHER(mpi, 1)    polypath_match_all_mpi: the phases in one launch
#pragma once

#include "messaging/kernels/matching_args.h"
#include "polypath/device/matcher_grid.cuh"
#include "simt/platform.cuh"

namespace polypath {

SIMT_DEVICE void store_outcome(device::match_outcome* to, const device::match_outcome& outcome) {
  auto* const words = reinterpret_cast<std::uint64_t*>(to);
  simt::store(words,
              static_cast<std::uint32_t>(outcome.status) | std::uint64_t{outcome.index} << 32);
  simt::store(words + 1, outcome.matches | std::uint64_t{outcome.unmatched_messages} << 32);
  simt::store(words + 2, std::uint64_t{outcome.unmatched_receives});
}

/// By one thread.
SIMT_DEVICE void count_outcome(MatchState* state, const device::match_outcome& outcome) {
  if (outcome.matches != 0)
    simt::fetch_add<device::device_scope>(&state->matches, std::uint64_t{outcome.matches});
  if (outcome.status != device::match_status::done)
    simt::fetch_add<device::device_scope>(&state->refused, std::uint64_t{1});
}

SIMT_DEVICE device::match_batch counted(device::match_batch batch, const MatchState* state,
                                        bool uses_leftovers) {
  if (!uses_leftovers) return batch;
  batch.message_count = simt::load(&state->messages);
  batch.receive_count = simt::load(&state->receives);
  return batch;
}

SIMT_DEVICE device::match_batch batch_of_queue(const MatchQueuesArgs& args, std::uint32_t queue) {
  device::match_batch batch = counted(args.batch, args.state, args.uses_leftovers != 0);
  if (args.message_begins == nullptr) return batch;
  const std::uint32_t first_message = simt::load(args.message_begins + queue);
  const std::uint32_t first_receive = simt::load(args.receive_begins + queue);
  batch.messages += first_message;
  batch.receives += first_receive;
  batch.matched_message += first_receive;
  batch.message_count = simt::load(args.message_begins + queue + 1) - first_message;
  batch.receive_count = simt::load(args.receive_begins + queue + 1) - first_receive;
  return batch;
}

/// By a warp or block.
template <typename Matcher, typename Group>
SIMT_DEVICE device::match_outcome match_queue(const Group& members,
                                              typename Matcher::storage& memory,
                                              const MatchQueuesArgs& args, std::uint32_t queue,
                                              const device::match_batch& batch) {
  device::match_outcome outcome{device::match_status::full, 0, 0, 0, 0, 0};
  if (batch.message_count <= args.capacity && batch.receive_count <= args.capacity)
    outcome = Matcher::match(members, memory, batch);
  else
    device::detail::match_nothing(batch, members.rank(), members.size());
  if (members.is_leader() && args.outcomes != nullptr)
    store_outcome(args.outcomes + queue, outcome);
  return outcome;
}

template <typename Order>
SIMT_DEVICE void match_queues(const MatchQueuesArgs& args) {
  using Matcher = device::matcher<Order, kMaxPerQueue>;
  auto& memory = *simt::dynamic_shared<typename Matcher::storage>();
  for (std::uint32_t queue = simt::block_index(); queue < args.queues; queue += simt::grid_size()) {
    const device::match_outcome outcome =
        match_queue<Matcher>(simt::this_block{}, memory, args, queue, batch_of_queue(args, queue));
    if (simt::thread_index() == 0) count_outcome(args.state, outcome);
  }
}

template <typename Order>
SIMT_DEVICE void match_phase(const MatchGridArgs& args, std::uint32_t phase) {
  using Matcher = device::grid_matcher<Order>;
  struct Bits {
    std::uint32_t of_warp[kMatchGridThreads / 32][Matcher::kWarpWords];
  };
  SIMT_SHARED(Bits, bits);
  Matcher::run(phase, bits.of_warp[simt::thread_index() / 32], args.workspace, args.capacity,
               counted(args.batch, args.state, args.uses_leftovers != 0));
}

template <typename Order>
SIMT_DEVICE void match_outcome_of(const MatchGridArgs& args) {
  if (simt::thread_index() != 0) return;
  const device::match_outcome outcome = device::grid_matcher<Order>::outcome(
      args.workspace, args.capacity, counted(args.batch, args.state, args.uses_leftovers != 0));
  if (args.outcome != nullptr) store_outcome(args.outcome, outcome);
  count_outcome(args.state, outcome);
}

/// All phases, by blocks that run at once.
template <typename Order>
SIMT_DEVICE void match_together(const MatchGridArgs& args, std::uint32_t* warp_bits) {
  device::match_outcome outcome{};
  if (!device::grid_matcher<Order>::match_together(
          &args.state->meetings, warp_bits, args.workspace, args.capacity,
          counted(args.batch, args.state, args.uses_leftovers != 0), outcome))
    return;
  if (args.outcome != nullptr) store_outcome(args.outcome, outcome);
  count_outcome(args.state, outcome);
}

/// Many queues by blocks of `threads` threads, with few enough registers for `blocks` blocks
/// per SM.
#define POLYPATH_MATCH_MANY_KERNEL(order, threads, blocks)                                     \
  SIMT_KERNEL_MIN_BLOCKS(polypath_match_many_##order, threads, blocks, MatchQueuesArgs args) { \
    ::polypath::simt::grid_dependency_wait();                                                  \
    match_queues<device::order>(args);                                                         \
  }                                                                                            \
  SIMT_EMULATED_THREADS(polypath_match_many_##order, 64)

#define POLYPATH_MATCH_QUEUES(order)                                                \
  SIMT_KERNEL(polypath_match_queues_##order, kMatchThreads, MatchQueuesArgs args) { \
    ::polypath::simt::grid_dependency_wait();                                       \
    match_queues<device::order>(args);                                              \
  }                                                                                 \
  SIMT_EMULATED_THREADS(polypath_match_queues_##order, 64)
#define POLYPATH_MATCH_GRID(order)                                                \
  SIMT_KERNEL(polypath_match_grid_##order, kMatchGridThreads, MatchGridArgs args, \
              std::uint32_t phase) {                                              \
    ::polypath::simt::grid_dependency_wait();                                     \
    match_phase<device::order>(args, phase);                                      \
  }                                                                               \
  SIMT_EMULATED_THREADS(polypath_match_grid_##order, 32)
#define POLYPATH_MATCH_OUTCOME(order)                                   \
  SIMT_KERNEL(polypath_match_outcome_##order, 32, MatchGridArgs args) { \
    ::polypath::simt::grid_dependency_wait();                           \
    match_outcome_of<device::order>(args);                              \
  }                                                                     \
  static_assert(kMatchThreads % 32 == 0)
#define POLYPATH_MATCH_TOGETHER(order, blocks)                                      \
  SIMT_KERNEL_MIN_BLOCKS(polypath_match_all_##order, kMatchTogetherThreads, blocks, \
                         MatchGridArgs args) {                                      \
    struct Bits {                                                                   \
      std::uint32_t of_warp[kMatchTogetherThreads / 32]                             \
                           [device::grid_matcher<device::order>::kWarpWords];       \
    };                                                                              \
    SIMT_SHARED(Bits, bits);                                                        \
    match_together<device::order>(args, bits.of_warp[simt::warp_index()]);          \
  }                                                                                 \
  SIMT_EMULATED_THREADS(polypath_match_all_##order, 32)
#define POLYPATH_MATCH_KERNELS(order) \
  POLYPATH_MATCH_QUEUES(order);       \
  POLYPATH_MATCH_GRID(order);         \
  POLYPATH_MATCH_OUTCOME(order)

}  // namespace polypath
