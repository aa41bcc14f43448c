// Receives with wildcards of a warp or block: they choose one after another, in rounds.
//
// For each receive of a round there is a row of bits, of messages that it may take. All threads
// make them: a message sets its bit in the rows of the patterns that accept it, and in the row of
// the first receive with a wildcard that comes when a receive without one has taken it; from there
// on it is not free. Then one warp goes through the receives, 32 at a time: each takes its first
// bit that none before it has. That is right unless another one took a message of the same key
// since the rows were made: then the key's messages after that one went to other receives. So all
// 32 choices are looked at together; the first that is wrong, and those after it, choose again
// without what is not free any more.
#pragma once

#include "polypath/device/detail/key_chains.cuh"
#include "polypath/device/detail/mutants.hpp"
#include "polypath/device/detail/warp_reduce.cuh"

namespace polypath::device::detail {

template <unsigned kCapacity>
class wildcard_rounds {
 public:
  using storage = mpi_storage<kCapacity>;

  POLYPATH_DEVICE wildcard_rounds(storage& memory, const key_chains<kCapacity>& chains,
                                  const match_batch& batch, unsigned rank, unsigned size)
      : m_(memory),
        chains_(chains),
        b_(batch),
        rank_(rank),
        size_(size),
        lane_(rank % kWarp),
        lower_((1U << lane_) - 1) {}

  /// Next to key_chains::pair_short_groups: between the same barriers.
  POLYPATH_DEVICE void prepare() const {
    constexpr unsigned kEight = Sixteen<std::uint16_t>::kCount;
    for (std::uint32_t i = rank_; i <= storage::kSlots / kEight; i += size_)
      fill<std::uint16_t>(m_.taken + i * kEight, 0);
    for (std::uint32_t i = rank_; i - lane_ < b_.message_count; i += size_)
      if (i >= b_.message_count) m_.limits[i] = storage::kTaken;
    const std::uint32_t words = words_of(b_.receive_count);
    const std::uint32_t in_word = lane_ < words ? popcount(m_.wildcard_bits[lane_]) : 0;
    for (std::uint32_t i = rank_; i - lane_ < b_.receive_count; i += size_) {
      const std::uint32_t bits = m_.wildcard_bits[i / kWarp];
      const std::uint32_t before = warp_sum(lane_ < i / kWarp ? in_word : 0);
      std::uint32_t rank = before + popcount(bits & lower_);
      POLYPATH_MUTANT(match_mutant::mixed_wildcards, rank = before + popcount(bits >> lane_) - 1)
      if ((bits >> lane_ & 1) != 0) m_.wildcards[rank] = static_cast<std::uint16_t>(i);
      if (lane_ != 0) continue;
      m_.wildcards_before[i / kWarp] = static_cast<std::uint16_t>(before);
      if (i / kWarp == words - 1) m_.wildcard_count = before + popcount(bits);
    }
  }

  template <typename Group>
  POLYPATH_DEVICE void choose(const Group& group) const {
    const std::uint32_t count = m_.wildcard_count;
    for (std::uint32_t begin = 0; begin < count; begin += kRound) {
      const std::uint32_t of_round = count - begin < kRound ? count - begin : kRound;
      if (begin != 0) chains_.move_limits();
      clear(begin, of_round);
      POLYPATH_MUTANT_OMITS(match_mutant::no_barrier_of_rows)
      group.sync();
      set_bits(begin, of_round);
      POLYPATH_MUTANT_OMITS(match_mutant::no_barrier_of_bits)
      group.sync();
      if (rank_ < kWarp) decide(begin, of_round);
      POLYPATH_MUTANT_OMITS(match_mutant::no_barrier_of_rounds)
      group.sync();
    }
  }

 private:
  POLYPATH_MUTANT_ONLY(bool is_later(unsigned x) const { return warp_ballot(x != 0) & lower_; })
  [[nodiscard]] POLYPATH_DEVICE static std::uint32_t words_of(std::uint32_t count) {
    return (count + 31) / 32;
  }
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t slot_of_pattern(std::uint32_t wildcard) const {
    return m_.receives.links[m_.wildcards[wildcard]];
  }
  /// No bits; and each pattern of the round gets the row of one of its receives.
  POLYPATH_DEVICE void clear(std::uint32_t begin, std::uint32_t count) const {
    constexpr unsigned kFour = Sixteen<std::uint32_t>::kCount;
    constexpr unsigned kBits =
        (sizeof(m_.now.accepted) + sizeof(m_.now.between)) / sizeof(std::uint32_t);
    for (std::uint32_t i = rank_; i * kFour < kBits; i += size_)
      fill<std::uint32_t>(m_.now.accepted[0] + i * kFour, 0);
    for (std::uint32_t row = rank_; row < count; row += size_)
      m_.taken[slot_of_pattern(begin + row)] = static_cast<std::uint16_t>(begin + row + 1);
  }
  /// A large number for patterns that are not of the round.
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t row_of_pattern(std::uint32_t slot,
                                                             std::uint32_t begin) const {
    return m_.taken[slot] - (begin + 1);
  }

  /// By each message; a warp has 32 that share a word of each row.
  POLYPATH_DEVICE void set_bits(std::uint32_t begin, std::uint32_t count) const {
    const std::uint32_t kinds = m_.kinds;
    const std::uint32_t bit = 1U << lane_;
    for (std::uint32_t i = rank_; i - lane_ < b_.message_count; i += size_) {
      const std::uint32_t word = i / kWarp;
      const std::uint32_t limit = m_.limits[i];
      std::uint32_t first = 0;  // of the round's receives, for which it is not free
      if (limit == storage::kFree)
        first = kRound;
      else if (limit != storage::kTaken) {
        const std::uint32_t before = wildcards_before(limit - 1);
        first = before > begin ? before - begin : 0;
      }
      POLYPATH_MUTANT(match_mutant::wildcards_overtake, first = kRound)
      const bool is_free = first != 0 && limit != storage::kTaken;
      const unsigned free = warp_ballot(is_free);
      if (lane_ == 0) m_.now.gone[word] = ~free;
      if (free == 0) continue;
      if (is_free && first < count) in_shared::set(&m_.now.between[first][word], bit);
      POLYPATH_UNROLL
      for (unsigned kind = 1; kind < 4; ++kind) {
        if ((kinds >> 8 * kind & 1) == 0) continue;
        POLYPATH_MUTANT(match_mutant::no_any_any, if (kind == 3) continue)
        const std::uint32_t row = is_free ? row_of_pattern(m_.patterns[kind - 1][i], begin) : kNone;
        const bool has_row = row < count;
        if (kind == 3)
          set_for_most(row, has_row, word);
        else if (has_row)
          in_shared::set(&m_.now.accepted[row][word], bit);
      }
    }
  }
  /// The bits of a warp's messages, where most of them have the same row.
  POLYPATH_DEVICE void set_for_most(std::uint32_t row, bool has_row, std::uint32_t word) const {
    for (unsigned left = warp_ballot(has_row); left != 0;) {
      const unsigned leader = countr_one(~left);
      const std::uint32_t of_leader = warp_shuffle(row, leader);
      const unsigned alike = warp_ballot(has_row && row == of_leader);
      if (lane_ == leader) m_.now.accepted[of_leader][word] = alike;
      left &= ~alike;
    }
  }
  /// Wildcards among the receives in front of that one.
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t wildcards_before(std::uint32_t receive) const {
    const std::uint32_t word = receive / 32;
    return m_.wildcards_before[word] + popcount(m_.wildcard_bits[word] & ones_below(receive % 32));
  }

  /// By the first warp, whose lanes have 32 messages each; `here`: of those, what the receives in
  /// front left.
  POLYPATH_DEVICE void decide(std::uint32_t begin, std::uint32_t count) const {
    const std::uint32_t ever = lane_ < words_of(b_.message_count) ? ~0U : 0;
    std::uint32_t here = ever & ~m_.now.gone[own_word()];
    for (std::uint32_t from = 0; from < count;) {
      const std::uint32_t tried = count - from < kWarp ? count - from : kWarp;
      const std::uint32_t left = choose_first(begin, from, tried, here);
      const std::uint32_t kept = keep_free(begin + from, tried, from + tried == count);
      if (kept == tried) {
        here = left;
      } else {
        for (std::uint32_t row = from; row < from + kept; ++row)
          here &= ~m_.now.between[row][own_word()];
      }
      here &= ~m_.now.gone[own_word()];
      from += kept;
    }
  }
  /// The lane's; of a lane that has none, any.
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t own_word() const {
    return lane_ < storage::kWords ? lane_ : 0;
  }

  /// Each receive takes the first of its messages that no receive before it has taken. Returns what
  /// is left of `here`.
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t choose_first(std::uint32_t begin, std::uint32_t from,
                                                           std::uint32_t count,
                                                           std::uint32_t here) const {
    const std::uint32_t my_row =
        lane_ < count ? row_of_pattern(slot_of_pattern(begin + from + lane_), begin) : kRound;
    const std::uint32_t my_place = my_row * storage::kRow;
    const std::uint32_t* const accepted = m_.now.accepted[0] + own_word();
    const std::uint32_t* between = m_.now.between[from] + own_word();
    typename storage::choice* chosen = m_.now.chosen;
    chosen[lane_] = {0, 0};
    warp_sync();
    POLYPATH_NO_UNROLL
    for (std::uint32_t first = 0; first < count; first += kRowsTogether) {
      std::uint32_t offers[kRowsTogether];
      POLYPATH_UNROLL
      for (unsigned i = 0; i < kRowsTogether; ++i)
        offers[i] = accepted[warp_shuffle(my_place, first + i)];
      std::uint32_t taken = 0;
      POLYPATH_UNROLL
      for (unsigned i = 0; i < kRowsTogether; ++i) {
        taken |= between[i * storage::kRow];
        offers[i] &= ~taken;
      }
      POLYPATH_UNROLL
      for (unsigned i = 0; i < kRowsTogether; ++i) {
        POLYPATH_MUTANT(match_mutant::first_of_a_look, if (is_later(offers[i])) offers[i] = 0)
        const std::uint32_t bits = offers[i] & here;
        const unsigned which = warp_ballot(bits != 0);
        const std::uint32_t bit = (which & lower_) == 0 ? bits & (0 - bits) : 0;
        here ^= bit;
        if (bit != 0) chosen[i] = {bit, lane_};
      }
      here &= ~taken;
      between += kRowsTogether * storage::kRow;
      chosen += kRowsTogether;
    }
    warp_sync();
    return here;
  }

  /// By lanes with a receive each, from `first` on. Returns how many, up to the first that was
  /// wrong, have what they chose; the others choose again. A message is free if fewer than those of
  /// its key before it are taken: by receives of the key in front of this one and by wildcards.
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t keep_free(std::uint32_t first, std::uint32_t tried,
                                                        bool is_end) const {
    const std::uint32_t receive = lane_ < tried ? m_.wildcards[first + lane_] : 0;
    const typename storage::choice own = m_.now.chosen[lane_];
    const bool has_message = own.bit != 0;
    const std::uint32_t message = own.word * 32 + countr_one(own.bit - 1);
    const std::uint32_t slot = has_message ? m_.messages.slots[message] : storage::kNoSlot;
    const bool has_slot = slot != storage::kNoSlot;
    const std::uint32_t rank = has_slot ? rank_of(message) : 0;
    std::uint32_t taken = has_slot ? m_.taken[slot] : 0;
    const unsigned alike = alike_of(slot, has_slot);
    taken += popcount(alike & lower_);
    bool is_free = taken == 0 || rank >= chains_.receives_before(slot, receive) + taken;
    POLYPATH_MUTANT(match_mutant::looks_are_stale, is_free = true)
    const std::uint32_t free = countr_one(warp_ballot(is_free));
    const std::uint32_t kept = free < tried ? free : tried;
    if (has_message && lane_ <= kept) note_gone(message);
    if (has_message && lane_ < kept) {
      ++taken;
      m_.limits[message] = storage::kTaken;
      m_.results[receive] = static_cast<std::uint16_t>(message);
      if (b_.matched_receive != nullptr) store(b_.matched_receive + message, receive);
    }
    const bool is_last = (alike & ones_below(kept) & ~lower_ & ~(1U << lane_)) == 0;
    if (has_slot && is_last && lane_ <= kept) {
      m_.taken[slot] = static_cast<std::uint16_t>(taken);
      if (kept < tried || !is_end) exclude(slot, rank, taken, m_.wildcards[first + kept]);
    }
    warp_sync();
    return kept;
  }
  /// Messages of a key from `rank` on that are not free any more for that receive, nor for later
  /// ones.
  POLYPATH_DEVICE void exclude(std::uint32_t slot, std::uint32_t rank, std::uint32_t taken,
                               std::uint32_t receive) const {
    const std::uint32_t end = chains_.receives_before(slot, receive) + taken;
    chains_.for_ranks(slot, rank, end, [&](std::uint32_t message) { note_gone(message); });
  }
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t rank_of(std::uint32_t message) const {
    return key_chains<kCapacity>::rank_of(m_.messages.links[message]);
  }
  POLYPATH_DEVICE void note_gone(std::uint32_t message) const {
    in_shared::set(m_.now.gone + message / 32, 1U << message % 32);
  }
  /// The lanes with the same slot.
  [[nodiscard]] POLYPATH_DEVICE static unsigned alike_of(std::uint32_t slot, bool has_slot) {
    unsigned alike = warp_ballot(has_slot);
    POLYPATH_UNROLL
    for (unsigned bit = 0; 1U << bit < storage::kSlots; ++bit) {
      const unsigned ones = warp_ballot((slot >> bit & 1) != 0);
      alike &= ~(ones ^ (0U - (slot >> bit & 1)));
    }
    return has_slot ? alike : 0;
  }
  POLYPATH_DEVICE static unsigned ones_below(std::uint32_t count) {
    return count < 32 ? (1U << count) - 1 : ~0U;
  }

  storage& m_;
  const key_chains<kCapacity>& chains_;
  match_batch b_;
  unsigned rank_;
  unsigned size_;
  unsigned lane_;
  unsigned lower_;  // lanes below
};

}  // namespace polypath::device::detail
