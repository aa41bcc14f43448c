// What is carried over from batch to batch, of any order: polypath_match_append puts what is new
// after what is left over, polypath_match_keep writes the pairs down and moves together what is
// left then, in its order.
#pragma once

#include "messaging/kernels/leftover_mutants.h"
#include "messaging/kernels/matching_kernels.cuh"

namespace polypath {

/// By any number of blocks.
SIMT_KERNEL(polypath_match_append, kMatchGridThreads, MatchCarryArgs args) {
  simt::grid_dependency_wait();
  MatchState* const state = args.state;
  const std::uint32_t unmatched_messages = simt::load(&state->unmatched_messages);
  const std::uint32_t unmatched_receives = simt::load(&state->unmatched_receives);
  const bool is_full = !has_mutant(leftover_mutant::full_is_not_looked_at) &&
                       (args.message_count > args.capacity - unmatched_messages ||
                        args.receive_count > args.capacity - unmatched_receives);
  const std::uint32_t rank = simt::block_index() * simt::block_size() + simt::thread_index();
  const std::uint32_t size = simt::grid_size() * simt::block_size();
  if (rank == 0) {
    simt::store(&state->messages, is_full ? 0 : unmatched_messages + args.message_count);
    simt::store(&state->receives, is_full ? 0 : unmatched_receives + args.receive_count);
    simt::store(&state->is_full, is_full ? 1U : 0U);
  }
  if (is_full) return;
  const auto append = [&](device::envelope* to, std::uint64_t* numbers, std::uint32_t left,
                          std::uint64_t seen, const device::envelope* from, std::uint32_t count) {
    for (std::uint32_t i = rank; i < count; i += size) {
      simt::store(reinterpret_cast<std::uint64_t*>(to + left) + i,
                  simt::load(reinterpret_cast<const std::uint64_t*>(from) + i));
      simt::store(numbers + left + i, seen + i);
    }
  };
  append(args.buffers.messages, args.buffers.message_numbers, unmatched_messages,
         simt::load(&state->messages_seen), args.messages, args.message_count);
  append(args.buffers.receives, args.buffers.receive_numbers, unmatched_receives,
         simt::load(&state->receives_seen), args.receives, args.receive_count);
}
SIMT_EMULATED_THREADS(polypath_match_append, 32);

/// Threads of a block with something to write take places after one another, in their order: two
/// kinds at once, counted in the halves of a word.
struct OrderedPlaces {
  std::uint32_t counts[32];

  /// By all threads. The places of the thread, and in `total` how many there are.
  SIMT_DEVICE std::uint32_t give(bool first, bool second, std::uint32_t& total) {
    const unsigned lane = simt::lane_index();
    const unsigned firsts = simt::warp_ballot(first);
    const unsigned seconds = simt::warp_ballot(second);
    if (lane == 0)
      counts[simt::warp_index()] = simt::popcount(firsts) | simt::popcount(seconds) << 16;
    if (!has_mutant(leftover_mutant::no_barrier_of_counts)) simt::block_sync();
    std::uint32_t of_warp = lane < simt::block_size() / 32 ? counts[lane] : 0;
    if (has_mutant(leftover_mutant::no_barrier_of_counts))
      of_warp &= 0x000F000F;  // within the arrays
    const std::uint32_t up_to_warp = simt::detail::sum_up_to_me(of_warp);
    total = simt::warp_shuffle(up_to_warp, 31);
    const std::uint32_t before = simt::warp_shuffle(up_to_warp - of_warp, simt::warp_index());
    simt::block_sync();  // the next call counts in the same place
    const unsigned below = (1U << lane) - 1;
    return before + (simt::popcount(firsts & below) | simt::popcount(seconds & below) << 16);
  }
};

SIMT_DEVICE void move_envelope(device::envelope* envelopes, std::uint64_t* numbers,
                               std::uint32_t to, std::uint64_t bits, std::uint64_t number) {
  simt::store(reinterpret_cast<std::uint64_t*>(envelopes) + to, bits);
  simt::store(numbers + to, number);
}

/// By all threads of a block: the place among the new ones of the one at `index`. Of two that are
/// alike the one that is left over may have been told; then it is the first new one like it.
SIMT_DEVICE std::uint32_t index_of_new(OrderedPlaces& places, std::uint32_t& match,
                                       const device::envelope* envelopes, std::uint32_t index,
                                       std::uint32_t left, std::uint32_t count) {
  if (index >= left) return index - left;
  const auto* const all = reinterpret_cast<const std::uint64_t*>(envelopes);
  const std::uint64_t key = simt::load(all + index);
  std::uint32_t total = 0;
  for (std::uint32_t base = left; base < count && total == 0; base += simt::block_size()) {
    const std::uint32_t i = base + simt::thread_index();
    const bool is_like_it = i < count && simt::load(all + i) == key;
    if (places.give(is_like_it, false, total) == 0 && is_like_it) match = i - left;
  }
  simt::block_sync();
  return total == 0 ? 0 : match;
}

/// By one block: what is left never moves after where it was, so all of a turn is read before
/// anything of it is written.
SIMT_KERNEL(polypath_match_keep, kMatchThreads, MatchCarryArgs args) {
  SIMT_SHARED(OrderedPlaces, places);
  SIMT_SHARED(std::uint32_t, match);
  simt::grid_dependency_wait();
  MatchState* const state = args.state;
  const MatchBuffers& buffers = args.buffers;
  const std::uint32_t messages = simt::load(&state->messages);
  const std::uint32_t receives = simt::load(&state->receives);
  const std::uint32_t unmatched_messages = simt::load(&state->unmatched_messages);
  const std::uint32_t unmatched_receives = simt::load(&state->unmatched_receives);
  const std::uint64_t head = simt::load(reinterpret_cast<const std::uint64_t*>(&state->outcome));
  auto status = static_cast<device::match_status>(head);
  auto index = static_cast<std::uint32_t>(head >> 32);
  if (simt::load(&state->is_full) != 0) status = device::match_status::full;
  device::match_outcome outcome{status, 0, 0, unmatched_messages, unmatched_receives, 0};
  if (status == device::match_status::done) {
    std::uint32_t left = 0;
    std::uint32_t pairs = 0;
    for (std::uint32_t base = 0; base < receives; base += simt::block_size()) {
      const std::uint32_t i = base + simt::thread_index();
      const bool is_one = i < receives;
      const std::uint32_t message =
          is_one ? simt::load(buffers.matched_message + i) : device::kNone;
      const std::uint64_t bits =
          is_one ? simt::load(reinterpret_cast<const std::uint64_t*>(buffers.receives) + i) : 0;
      const std::uint64_t number = is_one ? simt::load(buffers.receive_numbers + i) : 0;
      std::uint32_t total = 0;
      const bool is_left = is_one && message == device::kNone;
      const std::uint32_t place = places.give(is_left, is_one && !is_left, total);
      if (is_left) {
        move_envelope(buffers.receives, buffers.receive_numbers, left + (place & 0xFFFF), bits,
                      number);
      } else if (is_one) {
        auto* const pair = reinterpret_cast<std::uint64_t*>(args.pairs + pairs + (place >> 16));
        simt::store(pair, number);
        simt::store(pair + 1, simt::load(buffers.message_numbers + message));
      }
      left += total & 0xFFFF;
      pairs += total >> 16;
    }
    outcome.matches = pairs;
    outcome.unmatched_receives = left;
    left = 0;  // Nothing moves before all have given their places, and so have read their numbers.
    for (std::uint32_t base = 0; base < messages; base += simt::block_size()) {
      const std::uint32_t i = base + simt::thread_index();
      const bool is_left = i < messages && simt::load(buffers.matched_receive + i) == device::kNone;
      const std::uint64_t bits =
          is_left ? simt::load(reinterpret_cast<const std::uint64_t*>(buffers.messages) + i) : 0;
      const std::uint64_t number = is_left ? simt::load(buffers.message_numbers + i) : 0;
      std::uint32_t total = 0;
      const std::uint32_t place = places.give(is_left, false, total);
      if (is_left)
        move_envelope(buffers.messages, buffers.message_numbers, left + place, bits, number);
      left += total;
    }
    outcome.unmatched_messages = left;
  } else if (status == device::match_status::message_tag ||
             status == device::match_status::message_source ||
             status == device::match_status::message_twice) {
    outcome.index =
        index_of_new(places, match, buffers.messages, index, unmatched_messages, messages);
  } else if (status != device::match_status::full) {
    outcome.index =
        index_of_new(places, match, buffers.receives, index, unmatched_receives, receives);
  }
  simt::block_sync();
  if (simt::thread_index() != 0) return;
  if (status == device::match_status::done ||
      (status != device::match_status::full && has_mutant(leftover_mutant::refused_is_kept))) {
    if (status != device::match_status::done) {
      outcome.unmatched_messages = messages;
      outcome.unmatched_receives = receives;
    }
    simt::store(&state->unmatched_messages, outcome.unmatched_messages);
    simt::store(&state->unmatched_receives, outcome.unmatched_receives);
    simt::store(&state->messages_seen, simt::load(&state->messages_seen) + args.message_count);
    simt::store(&state->receives_seen, simt::load(&state->receives_seen) + args.receive_count);
  } else if (status == device::match_status::full) {
    simt::store(&state->refused, simt::load(&state->refused) + 1);
  }
  if (args.outcome != nullptr) store_outcome(args.outcome, outcome);
}
SIMT_EMULATED_THREADS(polypath_match_keep, 64);

}  // namespace polypath
