// matcher<hashed>: no wildcards and no order: any message of a key (tag, source, communicator) may
// take any receive of it, and as many are paired as can be.
//
// Messages are entered into a table (key_table.cuh). The first of its key has the key's slot; each
// other one counts itself there, and enters (slot, its count) as a key of its own: so however many
// have one key, they lie all over the table. A receive finds its slot, counts one down, and finds
// what has that count. With unique keys, which the caller promises, the count is only looked at:
// by the whole GPU, while a warp or block has a table of its own kind for them (match_unique.cuh).
#pragma once

#include <cstdint>

#include "polypath/device/detail/batch_checks.cuh"
#include "polypath/device/detail/key_table.cuh"
#include "polypath/device/detail/matcher.cuh"
#include "polypath/device/detail/mutants.hpp"
#include "polypath/device/group.cuh"

namespace polypath::device {
namespace detail {

/// The phases, in their order, each called by `size` threads (whole warps) with their ranks, and
/// with a barrier of theirs after it.
template <typename Slots, typename Order>
class hash_phases {
  using Place = typename Slots::Place;
  static constexpr bool kCounts = std::is_same<Order, hashed>::value;

 public:
  POLYPATH_DEVICE hash_phases(const Slots& slots, std::uint64_t seed, const match_batch& batch,
                              std::uint32_t rank, std::uint32_t size)
      : table_(slots, seed), b_(batch), rank_(rank), size_(size) {}

  POLYPATH_DEVICE void clear() const {
    for (std::uint32_t slot = rank_; slot < table_.size(); slot += size_)
      table_.slots().clear(slot);
    if (b_.matched_receive == nullptr) return;
    for (std::uint32_t i = rank_; i < b_.message_count; i += size_)
      store(b_.matched_receive + i, kNone);
  }

  /// Messages. Returns the first of this thread's that must not be matched, or kNone.
  POLYPATH_DEVICE std::uint32_t enter() const {
    std::uint32_t bad = kNone;
    envelope next = envelope_at(b_.messages, rank_, b_.message_count);
    for (std::uint32_t i = rank_; i - rank_in_warp() < b_.message_count; i += size_) {
      std::uint32_t slot = 0;
      bool is_new = true;
      const envelope message = next;
      next = envelope_at(b_.messages, i + size_, b_.message_count);
      if (i < b_.message_count) {
        if (status_of_message(message) == match_status::done) {
          slot = table_.template enter<kCounts>(bits_of(message), is_new);
          if (is_new) Place::put(table_.slots().message(slot), i);
        } else if (bad == kNone) {
          bad = i;
        }
      }
      if constexpr (kCounts) {
        if (!warp_any(!is_new)) continue;
        std::uint32_t rank = add(slot, !is_new, 1) + 1;
        POLYPATH_MUTANT(hash_mutant::all_ranks_alike, rank = 1)
        if (is_new) continue;
        slot = table_.template enter<false>(key_of(slot, rank), is_new);
        Place::put(table_.slots().message(slot), i);
      } else if (!is_new && bad == kNone) {
        bad = i;
      }
    }
    return bad;
  }

  /// Receives. `pairs`: how many this thread has made; returns as enter().
  POLYPATH_DEVICE std::uint32_t look(std::uint32_t& pairs) const {
    std::uint32_t bad = kNone;
    envelope next = envelope_at(b_.receives, rank_, b_.receive_count);
    for (std::uint32_t i = rank_; i - rank_in_warp() < b_.receive_count; i += size_) {
      std::uint32_t slot = kNoSlot;
      table_slot entry{};
      const envelope receive = next;
      next = envelope_at(b_.receives, i + size_, b_.receive_count);
      if (i < b_.receive_count) {
        if (status_of_receive(Order{}, receive) == match_status::done)
          slot = table_.find(bits_of(receive), entry);
        else if (bad == kNone)
          bad = i;
      }
      const auto count =
          static_cast<std::int32_t>(kCounts           ? add(slot, slot != kNoSlot, ~0U)
                                    : slot != kNoSlot ? Place::add(table_.slots().left(slot), ~0U)
                                                      : 0);
      if (i >= b_.receive_count) continue;
      std::uint32_t message = slot == kNoSlot ? kNone : entry.message;
      bool has_key = slot != kNoSlot;
      POLYPATH_MUTANT(hash_mutant::one_message_a_key, has_key = false)
      if (has_key) {
        if (count < 0) message = kNone;
        if (!kCounts && count < 0 && bad == kNone) bad = i;
        if (kCounts && count > 0 && table_.find(key_of(slot, count), entry) != kNoSlot)
          message = entry.message;
      }
      store(b_.matched_message + i, message);
      if (message == kNone) continue;
      ++pairs;
      if (b_.matched_receive != nullptr) store(b_.matched_receive + message, i);
    }
    return bad;
  }

 private:
  /// Loaded a turn ahead of its use.
  POLYPATH_DEVICE static envelope envelope_at(const envelope* from, std::uint32_t index,
                                              std::uint32_t count) {
    return index < count ? load(from + index) : envelope{};
  }
  /// A key that no envelope has: its tag would be out of range.
  POLYPATH_DEVICE static std::uint64_t key_of(std::uint32_t slot, std::uint32_t rank) {
    return 0x80000000U | slot | std::uint64_t{rank} << 32;
  }
  /// Adds `increment`, 1 or -1, to the count of each thread's slot, if it `takes_part`; returns
  /// what was there. Those with the slot of the first of the warp add once: all messages may have
  /// one key.
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t add(std::uint32_t slot, bool takes_part,
                                                  std::uint32_t increment) const {
    const unsigned all = warp_ballot(takes_part);
    if (all == 0) return 0;
    const unsigned first = countr_one(~all & (all - 1));
    const std::uint32_t of_first = warp_shuffle(slot, first);
    const bool is_with_first = takes_part && slot == of_first;
    const unsigned with_first = warp_ballot(is_with_first);
    const bool adds = takes_part && (!is_with_first || rank_in_warp() == first);
    std::uint32_t before = 0;
    if (adds)
      before = Place::add(table_.slots().left(slot),
                          is_with_first ? increment * popcount(with_first) : increment);
    const std::uint32_t of_all = warp_shuffle(before, first);
    if (!is_with_first) return before;
    return of_all + increment * popcount(with_first & ((1U << rank_in_warp()) - 1));
  }

  key_table<Slots> table_;
  match_batch b_;
  std::uint32_t rank_;
  std::uint32_t size_;
};

}  // namespace detail

template <unsigned kCapacity>
class matcher<hashed, kCapacity> {
 public:
  using storage = hashed_storage<kCapacity>;

  /// `group`: a warp, or a block of one dimension and whole warps. `seed` of the hashes, which
  /// senders must not know; 0: by the clock.
  template <typename Group>
  POLYPATH_DEVICE static match_outcome match(const Group& group, storage& of_group,
                                             const match_batch& batch, std::uint64_t seed = 0) {
    using Phases = detail::hash_phases<detail::shared_slots, hashed>;
    storage& memory = as_shared(of_group);
    const unsigned rank = group.rank();
    const unsigned size = group.size();
    if (batch.message_count > kCapacity || batch.receive_count > kCapacity) {
      detail::match_nothing(batch, rank, size);
      group.sync();
      return detail::refused(match_status::full, 0);
    }
    if (group.is_leader()) memory.seed = seed != 0 ? seed : detail::seed_by_clock();
    const detail::shared_slots slots(memory.keys, memory.messages, memory.left,
                                     table_view::slots_log2_for(batch.message_count));
    Phases(slots, 0, batch, rank, size).clear();
    group.sync();
    const Phases phases(slots, memory.seed, batch, rank, size);
    detail::batch_tally tally{phases.enter(), 0};
    POLYPATH_MUTANT_OMITS(hash_mutant::no_barrier)
    group.sync();
    const std::uint32_t bad_receive = phases.look(tally.pairs);
    if (tally.bad == kNone && bad_receive != kNone) tally.bad = batch.message_count + bad_receive;
    tally = detail::of_all(group, memory.sums, tally);
    if (tally.bad == kNone) return detail::outcome_of(batch, tally.pairs);
    detail::match_nothing(batch, rank, size);
    group.sync();
    return detail::refused_in<hashed>(batch, tally.bad);
  }
};

/// One phase by all threads of a grid; they are hashed_workspace::kPhases. `words`: of the block,
/// in shared memory.
template <typename Order>
POLYPATH_DEVICE void run_table_phase(const table_view& view, unsigned phase, match_sums& sums) {
  const detail::whole_grid grid;
  const detail::hash_phases<detail::global_slots, Order> phases(
      {view.slots, view.slots_log2}, phase == 0 ? 0 : load(&view.words->seed), view.batch,
      grid.rank(), grid.size());
  if (phase == 0) {
    phases.clear();
    if (grid.rank() == 0)
      detail::begin_words(view.words, view.seed != 0 ? view.seed : detail::seed_by_clock());
  }
  if (phase == 1) {
    // Each message takes a slot, at most.
    if (view.batch.message_count > std::uint64_t{1} << view.slots_log2) {
      detail::note_bad(&view.words->bad, false, 0, match_status::full);
      return;
    }
    const std::uint32_t bad = phases.enter();
    if (bad != kNone)
      detail::note_bad(&view.words->bad, false, bad,
                       detail::why_not<Order>(view.batch, false, bad));
  }
  if (phase == 2) {
    std::uint32_t pairs = 0;
    const std::uint32_t bad = phases.look(pairs);
    if (bad != kNone)
      detail::note_bad(&view.words->bad, true, bad, detail::why_not<Order>(view.batch, true, bad));
    pairs = detail::sum_of(this_block{}, sums, pairs);
    if (thread_index() == 0 && pairs > 0) fetch_add<device_scope>(&view.words->matches, pairs);
  }
  if (phase == 3 && load(&view.words->bad) != kNothingBad)
    detail::match_nothing(view.batch, grid.rank(), grid.size());
}

}  // namespace polypath::device
