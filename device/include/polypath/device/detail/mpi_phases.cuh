// MPI's order of matching, in phases with a barrier between them. Each is done by many threads, of
// a block or of the whole GPU, but for one that one warp does.
//
// What takes the messages of one key, receives of just that key and receives with wildcards, takes
// them in their order: the t-th taker, by the order of receives, has the t-th message. So of a key
// nothing matters but how many took from it, and only receives with wildcards, which choose among
// keys, are gone through one by one, in their order: at its turn the first message of its list (all
// that it accepts, in their order) is free if fewer than the messages of its key before it are
// taken, by receives of the key in front of this one and by wildcards. What is not free never will
// be: a list is read once. In the end the p-th message of a key, when q wildcards have taken from
// those before it, takes receive p - q of the key.
//
// Receives are grouped by key, and messages by key and by each pattern with a wildcard, in one hash
// table; the order in a group comes by counting, of long groups by a bitmap.
#pragma once

#include "polypath/device/detail/grid_barrier.cuh"
#include "polypath/device/detail/match_types.hpp"
#include "polypath/device/detail/mpi_tables.hpp"
#include "polypath/device/detail/mutants.hpp"
#include "polypath/device/detail/table_memory.cuh"
#include "polypath/device/detail/warp_reduce.cuh"

namespace polypath::device {

namespace detail {

POLYPATH_DEVICE envelope load_envelope(const envelope* from) {
  return envelope_of(load(reinterpret_cast<const std::uint64_t*>(from)));
}

}  // namespace detail

/// The phases, in their order, each called by `size` threads (whole warps) with their ranks.
template <typename Place>
class mpi_phases {
 public:
  using index = typename Place::index;
  using tables = mpi_tables<index>;

  POLYPATH_DEVICE mpi_phases(const tables& table, const match_batch& batch, unsigned rank,
                             unsigned size)
      : t_(table), b_(batch), rank_(rank), size_(size), lane_(rank % kWarp) {}

  POLYPATH_DEVICE void clear() const {
    for (std::uint32_t slot = rank_; slot < t_.slots(); slot += size_) {
      Place::put(t_.keys + slot, detail::kNoKey);
      Place::put(t_.receive_counts + slot, 0U);
      Place::put(t_.message_counts + slot, 0U);
    }
    for (std::uint32_t i = rank_; i < b_.receive_count; i += size_)
      store(b_.matched_message + i, kNone);
    if (b_.matched_receive != nullptr)
      for (std::uint32_t i = rank_; i < b_.message_count; i += size_)
        store(b_.matched_receive + i, kNone);
    if (rank_ != 0) return;
    Place::put(t_.receive_counts + t_.slots(), 0U);
    Place::put(&t_.all->lists, std::uint64_t{0});
    Place::put(&t_.all->groups, std::uint64_t{0});
    Place::put(&t_.all->longs, 0U);
    Place::put(&t_.all->kinds, 0U);
    Place::put(&t_.all->is_long, 0U);
    Place::put(&t_.all->matches, 0U);
    Place::put(&t_.all->reason, std::uint64_t{0});
  }

  POLYPATH_DEVICE void enter_receives() const {
    for (std::uint32_t i = rank_; i - lane_ < b_.receive_count; i += size_) {
      unsigned kind = 0;
      if (i < b_.receive_count) {
        const envelope receive = detail::load_envelope(b_.receives + i);
        if (check_receive(receive) != envelope_error::none) refuse(match_status::receive_tag, i);
        kind = kind_of(receive);
        const std::uint32_t slot = enter(bits_of(receive));
        Place::put(t_.receive_slots + i, slot);
        Place::put(t_.receive_ranks + i,
                   Place::add(t_.receive_counts + (kind == 0 ? slot : t_.slots()), 1U));
      }
      // One lane speaks for its warp.
      POLYPATH_UNROLL
      for (unsigned each = 1; each < detail::kPatterns; ++each)
        if (warp_any(kind == each) && lane_ == 0) note_kind(each);
    }
  }

  POLYPATH_DEVICE void enter_messages() const {
    const std::uint32_t kinds = wildcards();
    for (std::uint32_t i = rank_; i < b_.message_count; i += size_) {
      const envelope message = detail::load_envelope(b_.messages + i);
      const envelope_error error = check_message(message);
      if (error != envelope_error::none)
        refuse(
            error == envelope_error::tag ? match_status::message_tag : match_status::message_source,
            i);
      for (unsigned kind = 0; kind < detail::kPatterns; ++kind) {
        if (!has_lists(kinds, kind)) continue;
        const std::uint32_t at = place_of(kind, i);
        const std::uint32_t slot = find(pattern_of(message, kind));
        Place::put(t_.message_slots + at, slot);
        Place::put(t_.message_ranks + at,
                   slot == tables::kNoSlot ? 0U : Place::add(t_.message_counts + slot, 1U));
      }
    }
  }

  /// Gives each group its part of the lists. `words`: of the block, two for each warp.
  POLYPATH_DEVICE void give_out_lists(std::uint32_t* words) const {
    const std::uint32_t slots = t_.slots();
    const bool any = wildcards() != 0;
    if (any) {
      if (rank_ == 0)
        Place::put(t_.receive_begins + slots,
                   static_cast<std::uint32_t>(fetch_add<device_scope>(
                       &t_.all->lists, std::uint64_t{Place::get(t_.receive_counts + slots)})));
      for (std::uint32_t i = rank_; i < slots + b_.message_count; i += size_)
        Place::put(t_.taken + i, 0U);
    }
    const std::uint32_t first = rank_ - thread_index();
    for (std::uint32_t at = first; at < slots; at += size_) {  // the same for all of a block
      const std::uint32_t slot = at + thread_index();
      const std::uint32_t receives = slot < slots ? Place::get(t_.receive_counts + slot) : 0;
      const std::uint32_t messages = slot < slots ? Place::get(t_.message_counts + slot) : 0;
      if (!block_any((receives | messages) != 0)) continue;
      const std::uint64_t begin =
          detail::share_out(words, &t_.all->lists, receives | std::uint64_t{messages} << 32);
      if ((receives | messages) != 0) {
        Place::put(t_.receive_begins + slot, static_cast<std::uint32_t>(begin));
        Place::put(t_.message_begins + slot, static_cast<std::uint32_t>(begin >> 32));
      }
      if (any) continue;
      const std::uint32_t most = receives < messages ? messages : receives;
      const bool is_pair = receives != 0 && messages != 0;
      const bool is_noted = is_pair && most > detail::kFewOfGroup;
      if (is_pair && most > detail::kMaxPerGroup) store_relaxed<device_scope>(&t_.all->is_long, 1U);
      if (!block_any(is_noted)) continue;
      const std::uint64_t place =
          detail::share_out(words, &t_.all->groups, std::uint64_t{is_noted ? 1U : 0U});
      if (is_noted) Place::put(t_.noted + static_cast<std::uint32_t>(place), slot);
    }
  }
  /// Whether pair_groups() does all that is left; else the phases after it do. After
  /// give_out_lists() the same for all threads.
  [[nodiscard]] POLYPATH_DEVICE bool is_by_groups() const {
    return wildcards() == 0 && Place::get(&t_.all->is_long) == 0;
  }

  /// Fills the lists, in any order.
  POLYPATH_DEVICE void fill_lists() const {
    for_receives([&](std::uint32_t i, std::uint32_t slot) {
      Place::put(
          t_.receives + Place::get(t_.receive_begins + slot) + Place::get(t_.receive_ranks + i), i);
    });
    for_messages(0, [&](std::uint32_t i, std::uint32_t slot, std::uint32_t at) {
      Place::put(
          t_.messages + Place::get(t_.message_begins + slot) + Place::get(t_.message_ranks + at),
          i);
    });
  }

  /// Next to fill_lists(), where it is not by groups.
  POLYPATH_DEVICE void note_long_groups() const {
    if (rank_ == 0 && wildcards() != 0 &&
        Place::get(t_.receive_counts + t_.slots()) > detail::kShortGroup)
      note_long(t_.slots() * 2);
    for (std::uint32_t slot = rank_; slot < t_.slots(); slot += size_) {
      if (Place::get(t_.receive_counts + slot) > detail::kShortGroup) note_long(slot * 2);
      if (Place::get(t_.message_counts + slot) > detail::kShortGroup) note_long(slot * 2 + 1);
    }
  }

  /// Without wildcards: each group by itself (rank_pairing.cuh).
  POLYPATH_DEVICE void pair_groups() const;

  /// Finds the rank of each in its list. `bits`: of the calling warp, in shared memory.
  template <unsigned kWords>
  POLYPATH_DEVICE void find_ranks(std::uint32_t* bits) const {
    POLYPATH_MUTANT_OMITS(match_mutant::any_order_of_receives)
    for_receives([&](std::uint32_t i, std::uint32_t slot) {
      const std::uint32_t count = Place::get(t_.receive_counts + slot);
      if (count > 1 && count <= detail::kShortGroup)
        Place::put(t_.receive_ranks + i,
                   before(t_.receives + Place::get(t_.receive_begins + slot), count, i));
    });
    POLYPATH_MUTANT_OMITS(match_mutant::any_order_of_messages)
    for_messages(0, [&](std::uint32_t i, std::uint32_t slot, std::uint32_t at) {
      const std::uint32_t count = Place::get(t_.message_counts + slot);
      if (count > 1 && count <= detail::kShortGroup)
        Place::put(t_.message_ranks + at,
                   before(t_.messages + Place::get(t_.message_begins + slot), count, i));
    });
    POLYPATH_MUTANT(match_mutant::any_order_of_long_groups, return)
    // A warp takes a long group, and kWindow of all indices at a time.
    constexpr std::uint32_t kWindow = kWords * 32;
    const std::uint32_t most =
        b_.receive_count > b_.message_count ? b_.receive_count : b_.message_count;
    const std::uint32_t windows = (most + kWindow - 1) / kWindow;
    const std::uint64_t tasks = std::uint64_t{Place::get(&t_.all->longs)} * windows;
    for (std::uint64_t task = rank_ / kWarp; task < tasks; task += size_ / kWarp) {
      const std::uint32_t which = Place::get(t_.noted + static_cast<std::uint32_t>(task / windows));
      find_long_ranks<kWords>(bits, which, static_cast<std::uint32_t>(task % windows) * kWindow);
    }
  }

  /// Puts the lists in order that are read in it.
  POLYPATH_DEVICE void order_lists() const {
    for_receives([&](std::uint32_t i, std::uint32_t slot) {
      if (Place::get(t_.receive_counts + slot) > 1)
        Place::put(
            t_.receives + Place::get(t_.receive_begins + slot) + Place::get(t_.receive_ranks + i),
            i);
    });
    if (wildcards() != 0)
      for_messages(1, [&](std::uint32_t i, std::uint32_t slot, std::uint32_t at) {
        Place::put(
            t_.messages + Place::get(t_.message_begins + slot) + Place::get(t_.message_ranks + at),
            i);
      });
  }

  /// By one warp, for any size: receives with wildcards choose, one after another
  /// (wildcard_scan.cuh).
  POLYPATH_DEVICE void choose_for_wildcards() const;

  /// The rest of the messages take the receives of their keys.
  POLYPATH_DEVICE void take_the_rest() const;

  // Between phases the same for all threads.
  [[nodiscard]] POLYPATH_DEVICE bool is_refused() const { return Place::get(&t_.all->reason) != 0; }
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t wildcards() const {
    return Place::get(&t_.all->kinds);
  }
  /// After the last one.
  [[nodiscard]] POLYPATH_DEVICE match_outcome outcome() const {
    const std::uint64_t reason = Place::get(&t_.all->reason);
    const std::uint32_t matches = Place::get(&t_.all->matches);
    if (reason != 0)
      return {
          static_cast<match_status>(reason >> 32), static_cast<std::uint32_t>(reason), 0, 0, 0, 0};
    return {match_status::done,         0, matches, b_.message_count - matches,
            b_.receive_count - matches, 0};
  }

 private:
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t place_of(unsigned kind, std::uint32_t i) const {
    return kind * t_.capacity + i;
  }
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t first_slot(std::uint64_t key) const {
    return first_slot_of(key, b_.seed, 0, t_.slots_log2);
  }
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t enter(std::uint64_t key) const {
    for (std::uint32_t slot = first_slot(key);; slot = (slot + 1) & (t_.slots() - 1)) {
      std::uint64_t current = Place::peek(t_.keys + slot);
      if (current == detail::kNoKey) current = Place::exchange(t_.keys + slot, detail::kNoKey, key);
      if (current == detail::kNoKey || current == key) return slot;
    }
  }
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t find(std::uint64_t key) const {
    for (std::uint32_t slot = first_slot(key);; slot = (slot + 1) & (t_.slots() - 1)) {
      const std::uint64_t current = Place::get(t_.keys + slot);
      if (current == key) return slot;
      if (current == detail::kNoKey) return tables::kNoSlot;
    }
  }
  POLYPATH_DEVICE void refuse(match_status why, std::uint32_t i) const {
    Place::exchange(&t_.all->reason, 0, std::uint64_t{static_cast<std::uint32_t>(why)} << 32 | i);
  }
  POLYPATH_DEVICE void note_kind(unsigned kind) const {
    Place::put(reinterpret_cast<unsigned char*>(&t_.all->kinds) + kind, 1);
  }
  /// Whether messages have lists of that kind.
  [[nodiscard]] POLYPATH_DEVICE static bool has_lists(std::uint32_t kinds, unsigned kind) {
    POLYPATH_MUTANT(match_mutant::no_any_any, if (kind == 3) return false)
    return kind == 0 || (kinds >> (8 * kind) & 1) != 0;
  }
  POLYPATH_DEVICE void note_long(std::uint32_t which) const {
    Place::put(t_.noted + Place::add(&t_.all->longs, 1U), which);
  }

  /// Each receive with the slot of its list.
  template <typename Body>
  POLYPATH_DEVICE void for_receives(const Body& body) const {
    const bool any = wildcards() != 0;
    for (std::uint32_t i = rank_; i < b_.receive_count; i += size_) {
      std::uint32_t slot = Place::get(t_.receive_slots + i);
      if (any && has_wildcard(envelope_of(Place::get(t_.keys + slot)))) slot = t_.slots();
      body(i, slot);
    }
  }
  /// Each message with the slots of its lists, from `first` on.
  template <typename Body>
  POLYPATH_DEVICE void for_messages(unsigned first, const Body& body) const {
    const std::uint32_t kinds = wildcards();
    for (unsigned kind = first; kind < detail::kPatterns; ++kind) {
      if (!has_lists(kinds, kind)) continue;
      for (std::uint32_t i = rank_; i < b_.message_count; i += size_) {
        const std::uint32_t at = place_of(kind, i);
        const index slot = Place::get(t_.message_slots + at);
        if (slot != tables::kNoSlot) body(i, slot, at);
      }
    }
  }
  /// By a warp: of each thread.
  POLYPATH_DEVICE void note_matches(std::uint32_t count) const {
    const std::uint32_t all = detail::warp_sum(count);
    if (lane_ == 0 && all != 0) Place::add(&t_.all->matches, all);
  }
  /// How many of a list are less than `i`.
  POLYPATH_DEVICE static std::uint32_t before(const index* list, std::uint32_t count,
                                              std::uint32_t i) {
    std::uint32_t rank = 0;
    for (std::uint32_t k = 0; k < count; ++k) rank += Place::get(list + k) < i ? 1 : 0;
    return rank;
  }

  template <unsigned kWords>
  POLYPATH_DEVICE void find_long_ranks(std::uint32_t* bits, std::uint32_t which,
                                       std::uint32_t from) const;
  /// A message of a pattern's list, as one lane knows it.
  struct look {
    std::uint32_t message;
    std::uint32_t slot;   ///< of its key; after the slots where no receive has that key
    std::uint32_t rank;   ///< in its key,
    std::uint32_t taken;  ///< of which wildcards have taken this many
    std::uint32_t limit;  ///< it is free for receives in front of this one
  };
  POLYPATH_DEVICE std::uint32_t limit_of(std::uint32_t slot, std::uint32_t rank,
                                         std::uint32_t taken) const {
    if (rank < taken) return 0;
    POLYPATH_MUTANT(match_mutant::wildcards_overtake, return kNone)
    if (slot >= t_.slots()) return kNone;
    const std::uint32_t own = rank - taken;
    if (own >= Place::get(t_.receive_counts + slot)) return kNone;
    return Place::get(t_.receives + Place::get(t_.receive_begins + slot) + own);
  }
  /// Loads messages of a list from `at` on, one per lane.
  POLYPATH_DEVICE look look_at(std::uint32_t at, std::uint32_t count) const {
    if (lane_ >= count) return {kNone, kNone, 0, 0, 0};
    const std::uint32_t message = Place::get(t_.messages + at + lane_);
    const index slot = Place::get(t_.message_slots + message);
    look seen{message, slot == tables::kNoSlot ? t_.slots() + message : slot,
              Place::get(t_.message_ranks + message), 0, 0};
    seen.taken = Place::get(t_.taken + seen.slot);
    seen.limit = limit_of(seen.slot, seen.rank, seen.taken);
    return seen;
  }
  /// All of one key.
  struct group {
    const index* receives;
    const index* messages;
    std::uint32_t receive_count;
    std::uint32_t message_count;
  };
  [[nodiscard]] POLYPATH_DEVICE group group_of(std::uint32_t slot) const {
    const std::uint32_t receives = Place::get(t_.receive_counts + slot);
    const std::uint32_t messages = Place::get(t_.message_counts + slot);
    if (receives == 0 || messages == 0) return {nullptr, nullptr, 0, 0};
    return {t_.receives + Place::get(t_.receive_begins + slot),
            t_.messages + Place::get(t_.message_begins + slot), receives, messages};
  }
  /// Receives and messages that are in order. Returns how many pairs there are.
  template <unsigned kEach>
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t pair_each(
      const std::uint32_t (&both)[2][kEach]) const;
  /// By a warp: up to 32 * kEach of both. Returns how many pairs this thread has made.
  template <unsigned kEach>
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t pair_group(const group& members) const;
  /// By a thread: up to kFewOfGroup of both.
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t pair_few(const group& members) const;
  POLYPATH_DEVICE void pair(std::uint32_t message, std::uint32_t receive) const {
    store(b_.matched_message + receive, message);
    if (b_.matched_receive != nullptr) store(b_.matched_receive + message, receive);
  }

  tables t_;
  match_batch b_;
  unsigned rank_;
  unsigned size_;
  unsigned lane_;
};

template <typename Place>
template <unsigned kWords>
POLYPATH_DEVICE void mpi_phases<Place>::find_long_ranks(std::uint32_t* bits, std::uint32_t which,
                                                        std::uint32_t from) const {
  static_assert(kWords % kWarp == 0, "each lane has as many words of a bitmap");
  constexpr std::uint32_t kEach = kWords / kWarp;
  const std::uint32_t slot = which / 2;
  const bool of_messages = which % 2 != 0;
  const std::uint32_t count =
      Place::get((of_messages ? t_.message_counts : t_.receive_counts) + slot);
  const index* const list = of_messages ? t_.messages + Place::get(t_.message_begins + slot)
                                        : t_.receives + Place::get(t_.receive_begins + slot);
  index* ranks = of_messages ? t_.message_ranks : t_.receive_ranks;
  if (of_messages) ranks += place_of(kind_of(envelope_of(Place::get(t_.keys + slot))), 0);

  for (std::uint32_t word = lane_; word < kWords; word += kWarp) bits[word] = 0;
  warp_sync();
  std::uint32_t earlier = 0;
  for (std::uint32_t k = lane_; k < count; k += kWarp) {
    const std::uint32_t i = Place::get(list + k);
    if (i < from) ++earlier;
    if (i - from < kWords * 32) in_shared::set(bits + (i - from) / 32, 1U << (i % 32));
  }
  earlier = warp_shuffle(detail::sum_up_to_me(earlier), kWarp - 1);
  warp_sync();
  std::uint32_t own = 0;
  for (std::uint32_t word = 0; word < kEach; ++word) own += popcount(bits[lane_ * kEach + word]);
  const std::uint32_t before_my_words = earlier + detail::sum_up_to_me(own) - own;
  for (std::uint32_t k = lane_; k - lane_ < count; k += kWarp) {
    const std::uint32_t i = k < count ? Place::get(list + k) : from;
    const bool is_mine = k < count && i - from < kWords * 32;
    const std::uint32_t word = is_mine ? (i - from) / 32 : 0;
    std::uint32_t rank = warp_shuffle(before_my_words, word / kEach);
    if (!is_mine) continue;
    for (std::uint32_t w = word / kEach * kEach; w < word; ++w) rank += popcount(bits[w]);
    rank += popcount(bits[word] & ((1U << (i % 32)) - 1));
    Place::put(ranks + i, rank);
  }
  warp_sync();  // the next group's bits are put in the same place
}

template <typename Place>
POLYPATH_DEVICE void mpi_phases<Place>::take_the_rest() const {
  const bool any = wildcards() != 0;
  std::uint32_t matches = 0;
  for (std::uint32_t i = rank_; i < b_.message_count; i += size_) {
    const index slot = Place::get(t_.message_slots + i);
    const std::uint32_t rank = Place::get(t_.message_ranks + i);
    if (slot == tables::kNoSlot) continue;
    std::uint32_t own = rank;
    bool takes = true;
    const std::uint32_t taken = any ? Place::get(t_.taken + slot) : 0;
    if (taken != 0) {
      // How many of the ranks that wildcards took, which are in order, are before this one.
      const index* const ranks = t_.messages + Place::get(t_.message_begins + slot);
      std::uint32_t low = 0;
      std::uint32_t high = taken;
      while (low < high) {
        const std::uint32_t middle = (low + high) / 2;
        if (Place::get(ranks + middle) < rank)
          low = middle + 1;
        else
          high = middle;
      }
      takes = low == taken || Place::get(ranks + low) != rank;
      POLYPATH_MUTANT(match_mutant::shift_is_one_early, if (low < taken) low += 1)
      POLYPATH_MUTANT_OMITS(match_mutant::keys_do_not_shift)
      own = rank - low;
    }
    if (!takes || own >= Place::get(t_.receive_counts + slot)) continue;
    pair(i, Place::get(t_.receives + Place::get(t_.receive_begins + slot) + own));
    ++matches;
  }
  note_matches(matches);
}

}  // namespace polypath::device
