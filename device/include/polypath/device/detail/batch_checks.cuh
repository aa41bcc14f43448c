// What matchers do with a batch before and after the matching: look for what must not be matched,
// and count.
#pragma once

#include <cstdint>

#include "polypath/device/detail/match_types.hpp"
#include "polypath/device/detail/source_partition_view.hpp"
#include "polypath/device/detail/warp_reduce.cuh"
#include "polypath/device/group.cuh"
#include "polypath/device/platform.cuh"
#include "polypath/device/scope.cuh"

namespace polypath::device::detail {

/// What a matcher found, of a thread or of all.
struct batch_tally {
  std::uint32_t bad;    ///< the first that must not be matched, or kNone; messages come first
  std::uint32_t pairs;  ///< how many were made
};
/// The sums of all threads of a group, for each of them. After it, all see what each stored before.
/// Between two calls with the same memory there is a barrier of the group.
POLYPATH_DEVICE batch_tally of_all(const this_warp& warp, match_sums&, const batch_tally& own) {
  warp.sync();
  return {warp_min(own.bad), warp_sum(own.pairs)};
}
POLYPATH_DEVICE batch_tally of_all(const this_block& block, match_sums& memory,
                                   const batch_tally& own) {
  const batch_tally of_warp{warp_min(own.bad), warp_sum(own.pairs)};
  const unsigned warp = block.rank() / kWarp;
  if (rank_in_warp() == 0) {
    memory.words[warp] = of_warp.pairs;
    memory.least[warp] = of_warp.bad;
  }
  block.sync();
  const bool has_one = rank_in_warp() < block.size() / kWarp;
  return {warp_min(has_one ? memory.least[rank_in_warp()] : kNone),
          warp_sum(has_one ? memory.words[rank_in_warp()] : 0)};
}

/// The sum of one number over the group. No barrier is needed between two calls.
template <typename Group>
POLYPATH_DEVICE std::uint32_t sum_of(const Group& group, match_sums& memory, std::uint32_t value) {
  group.sync();  // others may still read the words of the one before
  return of_all(group, memory, {kNone, value}).pairs;
}
template <typename Group>
POLYPATH_DEVICE std::uint32_t min_of(const Group& group, match_sums& memory, std::uint32_t value) {
  group.sync();
  return of_all(group, memory, {value, 0}).bad;
}

POLYPATH_DEVICE bool forbids(mpi, const envelope&) { return false; }
POLYPATH_DEVICE bool forbids(partitioned, const envelope& receive) {
  return receive.source == any_source;
}
POLYPATH_DEVICE bool forbids(hashed_unique, const envelope& receive) {
  return has_wildcard(receive);
}
POLYPATH_DEVICE bool forbids(hashed, const envelope& receive) { return has_wildcard(receive); }

POLYPATH_DEVICE match_status status_of_message(const envelope& message) {
  const envelope_error error = check_message(message);
  if (error == envelope_error::tag) return match_status::message_tag;
  if (error == envelope_error::source) return match_status::message_source;
  return match_status::done;
}
template <typename Order>
POLYPATH_DEVICE match_status status_of_receive(Order order, const envelope& receive) {
  if (check_receive(receive) != envelope_error::none) return match_status::receive_tag;
  return forbids(order, receive) ? match_status::wildcard : match_status::done;
}

/// Nothing is matched: that is what the results say. By `size` threads.
POLYPATH_DEVICE void match_nothing(const match_batch& batch, unsigned rank, unsigned size) {
  for (std::uint32_t i = rank; i < batch.receive_count; i += size)
    store(batch.matched_message + i, kNone);
  if (batch.matched_receive != nullptr)
    for (std::uint32_t i = rank; i < batch.message_count; i += size)
      store(batch.matched_receive + i, kNone);
}

POLYPATH_DEVICE match_outcome outcome_of(const match_batch& batch, std::uint32_t matches) {
  return {match_status::done,
          0,
          matches,
          batch.message_count - matches,
          batch.receive_count - matches,
          0};
}
POLYPATH_DEVICE match_outcome refused(match_status why, std::uint32_t index) {
  return {why, index, 0, 0, 0, 0};
}
/// Why an envelope that a check has rejected must not be matched.
template <typename Order>
POLYPATH_DEVICE match_status why_not(const match_batch& batch, bool is_receive,
                                     std::uint32_t index) {
  const match_status status = is_receive ? status_of_receive(Order{}, load(batch.receives + index))
                                         : status_of_message(load(batch.messages + index));
  if (status != match_status::done) return status;  // else nothing is wrong with it alone
  return is_receive ? match_status::receive_twice : match_status::message_twice;
}
/// `bad`: as in Found; of receives, after the messages.
template <typename Order>
POLYPATH_DEVICE match_outcome refused_in(const match_batch& batch, std::uint32_t bad) {
  const bool is_receive = bad >= batch.message_count;
  const std::uint32_t index = is_receive ? bad - batch.message_count : bad;
  return refused(why_not<Order>(batch, is_receive, index), index);
}
POLYPATH_DEVICE void store_outcome(match_outcome* to, const match_outcome& outcome) {
  auto* const words = reinterpret_cast<std::uint64_t*>(to);
  store(words, static_cast<std::uint32_t>(outcome.status) | std::uint64_t{outcome.index} << 32);
  store(words + 1, outcome.matches | std::uint64_t{outcome.unmatched_messages} << 32);
  store(words + 2, std::uint64_t{outcome.unmatched_receives});
}

/// Notes in a word that began as kNothingBad the first message, or else the first receive, that
/// must not be matched.
POLYPATH_DEVICE void note_bad(std::uint64_t* word, bool is_receive, std::uint32_t index,
                              match_status why) {
  const std::uint64_t own =
      std::uint64_t{is_receive} << 63 | std::uint64_t{index} << 8 | static_cast<std::uint32_t>(why);
  for (std::uint64_t seen = load_relaxed<device_scope>(word); own < seen;) {
    const std::uint64_t previous = device::compare_exchange<device_scope>(word, seen, own);
    if (previous == seen) return;
    seen = previous;
  }
}
/// Not 0, and another each time.
POLYPATH_DEVICE std::uint64_t seed_by_clock() {
  return (global_timer_ns() + 1) * 0x9E3779B97F4A7C15U | 1;
}
/// By one thread, ahead of all else.
POLYPATH_DEVICE void begin_words(match_words* words, std::uint64_t seed) {
  store(&words->bad, kNothingBad);
  store(&words->seed, seed);
  store(&words->given_out, std::uint64_t{0});
  store(&words->matches, 0U);
  store(&words->is_crowded, 0U);
  store(&words->is_long, 0U);
  store(&words->noted, 0U);
}
/// By one thread, after all else: what a batch came to.
POLYPATH_DEVICE match_outcome outcome_of(const match_words* words, const match_batch& batch) {
  const std::uint64_t bad = load(&words->bad);
  if (bad == kNothingBad) return outcome_of(batch, load(&words->matches));
  return refused(static_cast<match_status>(bad & 0xFF), static_cast<std::uint32_t>(bad >> 8));
}

/// All threads of a grid, in the place of a group.
struct whole_grid {
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t rank() const {
    return block_index() * block_size() + thread_index();
  }
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t size() const { return grid_size() * block_size(); }
};

/// The first of a batch that must not be matched: of the messages, else of the receives, which
/// count after them; kNone: all may be.
template <typename Order, typename Group>
POLYPATH_DEVICE std::uint32_t first_bad(const Group& group, match_sums& memory,
                                        const match_batch& batch) {
  const unsigned rank = group.rank();
  std::uint32_t bad = kNone;
  for (std::uint32_t i = rank; i < batch.message_count && bad == kNone; i += group.size())
    if (status_of_message(load(batch.messages + i)) != match_status::done) bad = i;
  for (std::uint32_t i = rank; i < batch.receive_count && bad == kNone; i += group.size())
    if (status_of_receive(Order{}, load(batch.receives + i)) != match_status::done)
      bad = batch.message_count + i;
  return group.any(bad != kNone) ? min_of(group, memory, bad) : kNone;
}

/// Whether the batch may be matched; unless it is done all results are kNone.
template <typename Order, typename Group>
POLYPATH_DEVICE match_outcome check_batch(const Group& group, match_sums& memory,
                                          const match_batch& batch, std::uint32_t capacity) {
  match_outcome outcome = refused(match_status::full, 0);
  if (batch.message_count <= capacity && batch.receive_count <= capacity) {
    const std::uint32_t bad = first_bad<Order>(group, memory, batch);
    if (bad == kNone) return outcome_of(batch, 0);
    outcome = refused_in<Order>(batch, bad);
  }
  match_nothing(batch, group.rank(), group.size());
  group.sync();
  return outcome;
}

}  // namespace polypath::device::detail
