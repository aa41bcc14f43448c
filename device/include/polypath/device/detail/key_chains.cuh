// Messages and receives of a batch in chains by their keys, in shared memory of a warp or block;
// and which message a receive without wildcard takes: of the same key and rank, if no wildcard has
// taken one before.
//
// Each side has slots with the head of a chain, which has the indices of one key in any
// order. A rank is found by counting along the chain. A thread that finds more than kLongChain of
// them notes a long group (long_runs.cuh); its messages wait until those are in order.
#pragma once

#include "polypath/device/detail/batch_checks.cuh"
#include "polypath/device/detail/long_runs.cuh"
#include "polypath/device/detail/match_types.hpp"
#include "polypath/device/detail/mpi_storage.hpp"
#include "polypath/device/detail/mutants.hpp"
#include "polypath/device/detail/table_memory.cuh"

namespace polypath::device::detail {

/// 16 bytes of shared memory, in one store.
template <typename T>
struct alignas(16) Sixteen {
  static constexpr unsigned kCount = 16 / sizeof(T);
  T values[kCount];
};
template <typename T>
POLYPATH_DEVICE void fill(T* to, T value) {
  Sixteen<T> all;
  POLYPATH_UNROLL
  for (T& each : all.values) each = value;
  *reinterpret_cast<Sixteen<T>*>(to) = all;
}

POLYPATH_DEVICE std::uint64_t load_key(const envelope* from) {
  return load(reinterpret_cast<const std::uint64_t*>(from));
}

/// What one thread of `size` knows. Its first message and receive are loaded when it is made.
template <unsigned kCapacity>
class key_chains {
 public:
  using storage = mpi_storage<kCapacity>;
  using groups = typename storage::groups;
  static constexpr std::uint32_t kEnd = storage::kEnd;
  static constexpr std::uint32_t kNoSlot = storage::kNoSlot;
  static constexpr std::uint32_t kNothing = storage::kNothing;

  POLYPATH_DEVICE key_chains(storage& memory, const match_batch& batch, unsigned rank,
                             unsigned size)
      : m_(memory),
        b_(batch),
        rank_(rank),
        size_(size),
        lane_(rank % kWarp),
        receive_(rank < batch.receive_count ? load_key(batch.receives + rank) : kNoKey),
        message_(rank < batch.message_count ? load_key(batch.messages + rank) : kNoKey),
        slots_log2_(log2_of_slots(batch.receive_count)),
        first_slot_(batch.seed, slots_log2_) {}

  // The phases, with a barrier of the threads between them.

  POLYPATH_DEVICE void clear() const {
    constexpr unsigned kFour = Sixteen<std::uint32_t>::kCount;
    for (std::uint32_t i = rank_; i < slots() / kFour; i += size_) {
      fill<std::uint64_t>(m_.keys + i * kFour, kNoKey);
      fill<std::uint64_t>(m_.keys + i * kFour + kFour / 2, kNoKey);
      fill<std::uint32_t>(m_.receives.heads + i * kFour, kEnd);
      fill<std::uint32_t>(m_.messages.heads + i * kFour, kEnd);
    }
    if (rank_ != 0) return;
    m_.receives.links[kEnd] = kEnd | kNothing << 16;
    m_.messages.links[kEnd] = kEnd | kNothing << 16;
    m_.receives.longs = 0;
    m_.messages.longs = 0;
    m_.kinds = 0;
    m_.reason = 0;
  }

  POLYPATH_DEVICE void enter_receives() const {
    if (rank_ == 0) m_.matches = 0;
    std::uint64_t key = receive_;
    for (std::uint32_t i = rank_; i - lane_ < b_.receive_count; i += size_) {
      unsigned kind = 0;
      if (i < b_.receive_count) {
        const envelope receive = envelope_of(key);
        if (check_receive(receive) != envelope_error::none) refuse(match_status::receive_tag, i);
        kind = kind_of(receive);
        const std::uint32_t slot = enter(key);
        chain(m_.receives, kind != 0 ? kNoSlot : slot, i);
        if (kind != 0) m_.receives.links[i] = slot;
        m_.results[i] = kNothing;
      }
      if (i + size_ < b_.receive_count) key = load_key(b_.receives + i + size_);
      const unsigned wildcards = warp_ballot(kind != 0);
      if (lane_ == 0) m_.wildcard_bits[i / 32] = wildcards;
      if (wildcards == 0) continue;
      POLYPATH_UNROLL
      for (unsigned each = 1; each < 4; ++each)
        if (warp_any(kind == each) && lane_ == 0)
          reinterpret_cast<unsigned char*>(&m_.kinds)[each] = 1;
    }
  }

  /// And finds the ranks of receives, and which patterns accept a message.
  POLYPATH_DEVICE void enter_messages() const {
    std::uint64_t key = message_;
    const std::uint32_t kinds = m_.kinds;
    for (std::uint32_t i = rank_; i < b_.message_count; i += size_) {
      const match_status status = status_of_message(envelope_of(key));
      if (status != match_status::done) refuse(status, i);
      chain(m_.messages, find(key), i);
      if (kinds != 0) note_patterns(envelope_of(key), kinds, i);
      if (i + size_ < b_.message_count) key = load_key(b_.messages + i + size_);
    }
    for (std::uint32_t i = rank_; i < b_.receive_count; i += size_) {
      const std::uint32_t slot = m_.receives.slots[i];
      if (slot != kNoSlot) m_.receives.links[i] |= rank_in_chain(m_.receives, slot, i) << 16;
    }
  }

  /// Messages of short groups take receives; or only note which, where some have wildcards.
  template <bool kOnlyNote>
  POLYPATH_DEVICE void pair_short_groups() const {
    for_messages([&](std::uint32_t i) {
      const std::uint32_t slot = m_.messages.slots[i];
      if (slot == kNoSlot) return settle<kOnlyNote>(i, kNone);
      const std::uint32_t rank = rank_in_chain(m_.messages, slot, i);
      m_.messages.links[i] |= rank << 16;
      if (rank == kNothing || is_long(m_.receives.heads[slot])) return false;
      return settle<kOnlyNote>(i, of_rank(m_.receives, slot, rank));
    });
  }

  // For long groups, if there are any.

  POLYPATH_DEVICE void mark_long_groups() const {
    mark(m_.receives, b_.receive_count);
    mark(m_.messages, b_.message_count);
  }
  POLYPATH_DEVICE void count_long_groups() const {
    for (std::uint32_t group = rank_ / kWarp; group < m_.receives.longs; group += size_ / kWarp)
      long_group(m_.receives, group).count(lane_);
    count_long_groups_of_messages();
  }
  POLYPATH_DEVICE void count_long_groups_of_messages() const {
    for (std::uint32_t group = rank_ / kWarp; group < m_.messages.longs; group += size_ / kWarp)
      long_group(m_.messages, group).count(lane_);
  }
  template <bool kOnlyNote>
  POLYPATH_DEVICE void pair_long_groups() const {
    for_messages([&](std::uint32_t i) {
      const std::uint32_t slot = m_.messages.slots[i];
      if (slot == kNoSlot) return false;
      const std::uint32_t head = m_.messages.heads[slot];
      if (!is_long(head) && !is_long(m_.receives.heads[slot])) return false;
      std::uint32_t& link = m_.messages.links[i];
      if (is_long(head))
        link = next_of(link) | long_group(m_.messages, group_of(head)).rank(i) << 16;
      return settle<kOnlyNote>(i, of_rank(m_.receives, slot, rank_of(link)));
    });
  }

  /// Between rounds: which receives take the messages of keys of which wildcards have taken some.
  POLYPATH_DEVICE void move_limits() const {
    for (std::uint32_t i = rank_; i < b_.message_count; i += size_) {
      const std::uint32_t slot = m_.messages.slots[i];
      if (slot == kNoSlot || m_.taken[slot] == 0 || is_taken(i)) continue;
      const std::uint32_t rank = rank_of(m_.messages.links[i]);
      const std::uint32_t taken = m_.taken[slot];
      std::uint32_t limit = storage::kGone;
      if (rank >= taken) {
        const std::uint32_t receive = of_rank(m_.receives, slot, rank - taken);
        limit = receive == kNone ? storage::kFree : receive + 1;
      }
      m_.limits[i] = static_cast<std::uint16_t>(limit);
    }
  }

  // When wildcards have taken theirs.

  POLYPATH_DEVICE void unmark_taken() const {
    for (std::uint32_t i = rank_; i < b_.message_count; i += size_) {
      const std::uint32_t slot = m_.messages.slots[i];
      if (slot == kNoSlot || !is_taken(i) || !is_long(m_.messages.heads[slot])) continue;
      POLYPATH_MUTANT_OMITS(match_mutant::taken_keep_their_bits)
      long_group(m_.messages, group_of(m_.messages.heads[slot])).clear(i);
    }
  }
  POLYPATH_DEVICE void pair_the_rest() const {
    for_messages([&](std::uint32_t i) {
      if (is_taken(i)) return true;
      const std::uint32_t slot = m_.messages.slots[i];
      if (slot == kNoSlot) return give(i, kNone);
      bool is_settled = m_.taken[slot] == 0;
      POLYPATH_MUTANT(match_mutant::keys_do_not_shift, is_settled = true)
      if (is_settled) {
        const std::uint32_t limit = m_.limits[i];
        return give(i, limit == storage::kFree ? kNone : limit - 1);
      }
      return give(i, of_rank(m_.receives, slot, rank_of_the_rest(slot, i)));
    });
  }

  /// In the end.
  POLYPATH_DEVICE match_outcome write_results() const {
    for (std::uint32_t i = rank_; i < b_.receive_count; i += size_) {
      const std::uint32_t message = m_.results[i];
      store(b_.matched_message + i, message == kNothing ? kNone : message);
    }
    return outcome_of(b_, m_.matches);
  }

  // Between phases the same for all threads.
  [[nodiscard]] POLYPATH_DEVICE std::uint64_t reason() const { return m_.reason; }
  [[nodiscard]] POLYPATH_DEVICE bool any_wildcard() const { return m_.kinds != 0; }
  [[nodiscard]] POLYPATH_DEVICE bool any_long_group() const {
    return (m_.receives.longs | m_.messages.longs) != 0;
  }

  [[nodiscard]] POLYPATH_DEVICE static std::uint32_t rank_of(std::uint32_t link) {
    return link >> 16;
  }
  /// How many receives of the slot's key are in front of receive `i`.
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t receives_before(std::uint32_t slot,
                                                              std::uint32_t i) const {
    const std::uint32_t head = m_.receives.heads[slot];
    if (is_long(head)) return long_group(m_.receives, group_of(head)).rank(i);
    std::uint32_t count = 0;
    for (std::uint32_t at = head; at != kEnd; at = next_of(m_.receives.links[at])) count += at < i;
    return count;
  }
  /// Calls `visit(message)` for those of a key whose ranks are `begin` to before `end`.
  template <typename Visit>
  POLYPATH_DEVICE void for_ranks(std::uint32_t slot, std::uint32_t begin, std::uint32_t end,
                                 const Visit& visit) const {
    const std::uint32_t head = m_.messages.heads[slot];
    if (is_long(head)) {
      for (std::uint32_t rank = begin; rank < end; ++rank) {
        const std::uint32_t index = of_rank(m_.messages, slot, rank);
        if (index == kNone) return;  // there are no more
        visit(index);
      }
      return;
    }
    for (std::uint32_t at = head; at != kEnd;) {
      const std::uint32_t link = m_.messages.links[at];
      if (rank_of(link) >= begin && rank_of(link) < end) visit(at);
      at = next_of(link);
    }
  }

 private:
  /// For at least twice the receives.
  [[nodiscard]] POLYPATH_DEVICE static unsigned log2_of_slots(std::uint32_t receives) {
    return 32 - countl_zero((2 * receives - (receives != 0 ? 1 : 0)) | 31);
  }
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t slots() const { return 1U << slots_log2_; }
  [[nodiscard]] POLYPATH_DEVICE static std::uint32_t next_of(std::uint32_t link) {
    return link & 0xFFFF;
  }
  [[nodiscard]] POLYPATH_DEVICE static bool is_long(std::uint32_t head) { return head > kEnd; }
  [[nodiscard]] POLYPATH_DEVICE static std::uint32_t group_of(std::uint32_t head) {
    return head - kEnd - 1;
  }
  [[nodiscard]] POLYPATH_DEVICE bool is_taken(std::uint32_t i) const {
    return m_.limits[i] == storage::kTaken;
  }
  POLYPATH_DEVICE static long_run<storage::kWords> long_group(groups& chains, std::uint32_t group) {
    return {chains.bits[group], chains.before[group]};
  }
  POLYPATH_DEVICE void refuse(match_status why, std::uint32_t i) const {
    in_shared::exchange(&m_.reason, 0, std::uint64_t{static_cast<std::uint32_t>(why)} << 32 | i);
  }

  [[nodiscard]] POLYPATH_DEVICE std::uint32_t enter(std::uint64_t key) const {
    for (std::uint32_t slot = first_slot_(key);; slot = (slot + 1) & (slots() - 1)) {
      const std::uint64_t previous = in_shared::exchange(m_.keys + slot, kNoKey, key);
      if (previous == kNoKey || previous == key) return slot;
    }
  }
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t find(std::uint64_t key) const {
    for (std::uint32_t slot = first_slot_(key);; slot = (slot + 1) & (slots() - 1)) {
      const std::uint64_t current = m_.keys[slot];
      if (current == key) return slot;
      if (current == kNoKey) return kNoSlot;
    }
  }
  POLYPATH_DEVICE static void chain(groups& chains, std::uint32_t slot, std::uint32_t i) {
    chains.slots[i] = static_cast<std::uint16_t>(slot);
    chains.links[i] = slot == kNoSlot ? kEnd : in_shared::swap(chains.heads + slot, i);
  }

  /// kNothing: the group is long.
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t rank_in_chain(groups& chains, std::uint32_t slot,
                                                            std::uint32_t i) const {
    POLYPATH_MUTANT_ONLY(const bool is_first = &chains == &m_.receives)
    const std::uint32_t head = chains.heads[slot];
    if (is_long(head)) return kNothing;
    std::uint32_t rank = 0;
    std::uint32_t at = head;
    POLYPATH_NO_UNROLL
    for (unsigned length = 0; length < kLongChain; length += kSteps) {
      POLYPATH_UNROLL
      for (unsigned step = 0; step < kSteps; ++step) {
        POLYPATH_MUTANT_ONLY(const bool is_own = at == i; const unsigned own = length + step)
        POLYPATH_MUTANT(match_mutant::any_order_of_receives, if (is_own && is_first) return own)
        POLYPATH_MUTANT(match_mutant::any_order_of_messages, if (is_own && !is_first) return own)
        rank += at < i ? 1 : 0;
        at = next_of(chains.links[at]);
      }
      if (at == kEnd) return rank;
    }
    POLYPATH_MUTANT(match_mutant::long_is_not_noticed, return rank)
    if (head == i) note_long(chains, slot);
    return kNothing;
  }
  /// By the thread whose index is the chain's head, so once.
  POLYPATH_DEVICE static void note_long(groups& chains, std::uint32_t slot) {
    const std::uint32_t group = in_shared::add(&chains.longs, 1);
    long_group(chains, group).begin();
    chains.heads[slot] = kEnd + 1 + group;
  }
  POLYPATH_DEVICE void mark(groups& chains, std::uint32_t count) const {
    for (std::uint32_t i = rank_; i < count; i += size_) {
      const std::uint32_t slot = chains.slots[i];
      if (slot != kNoSlot && is_long(chains.heads[slot]))
        long_group(chains, group_of(chains.heads[slot])).set(i);
    }
  }

  POLYPATH_DEVICE void note_patterns(const envelope& message, std::uint32_t kinds,
                                     std::uint32_t i) const {
    POLYPATH_UNROLL
    for (unsigned kind = 1; kind < 4; ++kind) {
      if ((kinds >> 8 * kind & 1) == 0) continue;
      const std::uint32_t slot = find(pattern_of(message, kind));
      m_.patterns[kind - 1][i] =
          static_cast<std::uint16_t>(slot == kNoSlot ? storage::kNoPattern : slot);
    }
  }

  /// The one of that rank in its key; kNone: there are fewer.
  [[nodiscard]] POLYPATH_DEVICE static std::uint32_t of_rank(groups& chains, std::uint32_t slot,
                                                             std::uint32_t rank) {
    const std::uint32_t head = chains.heads[slot];
    if (is_long(head)) return long_group(chains, group_of(head)).of_rank(rank);
    for (std::uint32_t at = head; at != kEnd;) {
      const std::uint32_t link = chains.links[at];
      if (rank_of(link) == rank) return at;
      at = next_of(link);
    }
    return kNone;
  }
  /// How many messages of the slot's key before this one no wildcard took.
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t rank_of_the_rest(std::uint32_t slot,
                                                               std::uint32_t i) const {
    const std::uint32_t head = m_.messages.heads[slot];
    if (is_long(head)) return long_group(m_.messages, group_of(head)).rank(i);
    std::uint32_t rank = 0;
    POLYPATH_MUTANT_ONLY(bool is_early = false)
    for (std::uint32_t at = head; at != kEnd; at = next_of(m_.messages.links[at])) {
      rank += at < i && !is_taken(at);
      POLYPATH_MUTANT(match_mutant::shift_is_one_early, is_early |= at > i && is_taken(at))
    }
    POLYPATH_MUTANT(match_mutant::shift_is_one_early, if (is_early && rank != 0) rank -= 1)
    return rank;
  }

  template <bool kOnlyNote>
  POLYPATH_DEVICE bool settle(std::uint32_t i, std::uint32_t receive) const {
    if (!kOnlyNote) return give(i, receive);
    m_.limits[i] = static_cast<std::uint16_t>(receive == kNone ? storage::kFree : receive + 1);
    return false;
  }
  /// Says whether it takes one.
  POLYPATH_DEVICE bool give(std::uint32_t i, std::uint32_t receive) const {
    if (receive != kNone) m_.results[receive] = static_cast<std::uint16_t>(i);
    if (b_.matched_receive != nullptr) store(b_.matched_receive + i, receive);
    return receive != kNone;
  }
  /// Counts those for which `takes(i)`.
  template <typename Takes>
  POLYPATH_DEVICE void for_messages(const Takes& takes) const {
    for (std::uint32_t i = rank_; i - lane_ < b_.message_count; i += size_) {
      const unsigned all = warp_ballot(i < b_.message_count && takes(i));
      if (lane_ == 0 && all != 0) in_shared::add(&m_.matches, popcount(all));
    }
  }

  storage& m_;
  match_batch b_;
  unsigned rank_;
  unsigned size_;
  unsigned lane_;
  std::uint64_t receive_;  // its bits
  std::uint64_t message_;
  unsigned slots_log2_;
  slot_hash first_slot_;
};

}  // namespace polypath::device::detail
