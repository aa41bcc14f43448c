// Receives with wildcards of a warp or block: they choose one after another, in rounds.
//
// For each receive of a round, warps look which messages it may take, side by side: a bit for each.
// Then one warp goes through the receives, 32 at a time: each takes its first bit that none before
// it has. That is right unless another one took a message of the same key since the look: then the
// key's messages behind that one went to other receives. So all 32 choices are looked at together;
// the first that is wrong, and those behind it, choose again without what is not free any more.
#pragma once

#include "polypath/device/matcher_chains.cuh"

namespace polypath::device::detail {

template <unsigned kCapacity>
class WildcardRounds {
 public:
  using storage = mpi_storage<kCapacity>;

  POLYPATH_DEVICE WildcardRounds(storage& memory, const Chains<kCapacity>& chains,
                                 const match_batch& batch, unsigned rank, unsigned size)
      : m_(memory),
        chains_(chains),
        b_(batch),
        rank_(rank),
        size_(size),
        lane_(rank % kWarp),
        lower_((1U << lane_) - 1) {}

  /// Behind Chains::enter_messages, before the next barrier.
  POLYPATH_DEVICE void prepare() const {
    constexpr unsigned kEight = Sixteen<std::uint16_t>::kCount;
    for (std::uint32_t i = rank_; i < storage::kSlots / kEight; i += size_)
      fill<std::uint16_t>(m_.taken + i * kEight, 0);
    for (std::uint32_t i = rank_; i - lane_ < b_.message_count; i += size_)
      if (i >= b_.message_count) m_.limits[storage::place_of(i)] = storage::kTaken;
    const std::uint32_t bits = lane_ < words_of(b_.receive_count) ? m_.wildcard_bits[lane_] : 0;
    const std::uint32_t before = sum_up_to_me(count_of_ones(bits)) - count_of_ones(bits);
    for (std::uint32_t i = rank_; i - lane_ < b_.receive_count; i += size_) {
      const std::uint32_t word = warp_shuffle(bits, i / kWarp);
      const std::uint32_t of_warp = warp_shuffle(before, i / kWarp);
      std::uint32_t rank = of_warp + count_of_ones(word & lower_);
      if (planted(MatchFault::wildcards_in_no_order))
        rank = of_warp + count_of_ones(word >> lane_) - 1;
      if ((word >> lane_ & 1) != 0) m_.wildcards[rank] = static_cast<std::uint16_t>(i);
    }
  }

  template <typename Members>
  POLYPATH_DEVICE void choose(const Members& group) const {
    const std::uint32_t count = wildcards();
    for (std::uint32_t begin = 0; begin < count; begin += kRound) {
      if (begin != 0) {
        chains_.move_limits();
        group.sync();
      }
      const std::uint32_t of_round = count - begin < kRound ? count - begin : kRound;
      for (std::uint32_t row = rank_ / kWarp; row < of_round; row += size_ / kWarp)
        look(m_.now.rows[row], m_.wildcards[begin + row]);
      group.sync();
      if (rank_ < kWarp) decide(begin, of_round);
      if (!planted(MatchFault::no_barrier_of_rounds)) group.sync();
    }
  }

 private:
  [[nodiscard]] POLYPATH_DEVICE static std::uint32_t words_of(std::uint32_t count) {
    return (count + 31) / 32;
  }
  /// Of the lane's 32 messages, those that there are.
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t bits_of_messages() const {
    const std::uint32_t before = lane_ * 32;
    return b_.message_count <= before ? 0 : ones_below(b_.message_count - before);
  }
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t wildcards() const {
    const std::uint32_t own =
        lane_ < words_of(b_.receive_count) ? count_of_ones(m_.wildcard_bits[lane_]) : 0;
    return warp_shuffle(sum_up_to_me(own), kWarp - 1);
  }

  /// By a warp: which messages the receive accepts that none before it takes, as things are.
  POLYPATH_DEVICE void look(std::uint32_t* words, std::uint32_t receive) const {
    const std::uint32_t pattern = m_.receives.links[receive];
    std::uint32_t bits = 0;
    if (lane_ < words_of(b_.message_count))
      bits = look_at_own(pattern & 0xFFFF, pattern >> 16, receive);
    if (planted(MatchFault::first_of_a_look) && (warp_ballot(bits != 0) & lower_) != 0) bits = 0;
    if (lane_ < storage::kWords) words[lane_] = bits;
  }
  /// Of the lane's 32 messages, two at once.
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t look_at_own(std::uint32_t slot, unsigned kind,
                                                          std::uint32_t receive) const {
    if (kind == 3 && planted(MatchFault::no_any_any)) return 0;
    const std::uint32_t wanted = slot * 0x10001;
    const std::uint32_t early = planted(MatchFault::wildcards_overtake) ? 0 : receive + 1;
    std::uint32_t bits = 0;
    POLYPATH_UNROLL
    for (unsigned part = 0; part < 4; ++part) {
      const std::uint32_t at = part * storage::kStride + lane_ * 8;
      const auto patterns = words_at(m_.patterns[kind - 1] + at);
      const auto limits = words_at(m_.limits + at);
      POLYPATH_UNROLL
      for (unsigned i = 0; i < 4; ++i)
        bits |= halves_equal(patterns.values[i], wanted) &
                halves_greater(limits.values[i], early * 0x10001) & 0x10001U << (part * 4 + i);
    }
    return bits;
  }
  POLYPATH_DEVICE static Sixteen<std::uint32_t> words_at(const std::uint16_t* halves) {
    Sixteen<std::uint32_t> words;
    std::memcpy(&words, __builtin_assume_aligned(halves, 16), sizeof(words));
    return words;
  }

  /// By the first warp.
  POLYPATH_DEVICE void decide(std::uint32_t begin, std::uint32_t count) const {
    if (lane_ < storage::kWords) m_.now.gone[lane_] = ~bits_of_messages();
    warp_sync();
    std::uint32_t at_once = kWarp;
    for (std::uint32_t from = 0; from < count;) {
      const std::uint32_t tried = count - from < at_once ? count - from : at_once;
      choose_first(from, tried);
      const std::uint32_t kept = keep_free(begin + from, tried, from + tried == count);
      from += kept;
      at_once = kept < tried ? kWarp / 4 : at_once < kWarp ? 2 * at_once : kWarp;
    }
  }

  /// Each of so many receives takes the first of its messages that none before it has; by lanes
  /// with 32 messages each.
  POLYPATH_DEVICE void choose_first(std::uint32_t from, std::uint32_t count) const {
    constexpr unsigned kTogether = 8;  // receives whose words are loaded at once
    const bool has_words = lane_ < storage::kWords;
    std::uint32_t here = has_words ? ~m_.now.gone[lane_] : 0;
    m_.now.chosen[lane_] = {0, 0};
    warp_sync();
    POLYPATH_NO_UNROLL
    for (std::uint32_t first = 0; first < count; first += kTogether) {
      std::uint32_t words[kTogether];
      POLYPATH_UNROLL
      for (unsigned i = 0; i < kTogether; ++i)
        words[i] = has_words && first + i < count ? m_.now.rows[from + first + i][lane_] : 0;
      POLYPATH_UNROLL
      for (unsigned i = 0; i < kTogether; ++i) {
        const std::uint32_t own = words[i] & here;
        const unsigned which = warp_ballot(own != 0);
        const std::uint32_t bit = (which & lower_) == 0 ? own & (0 - own) : 0;
        here ^= bit;
        if (bit != 0) m_.now.chosen[first + i] = {bit, lane_};
      }
    }
    warp_sync();
  }

  /// By lanes with a receive each, from `first` on. Returns how many, up to the first that was
  /// wrong, have what they chose; the others choose again. A message is free if fewer than those of
  /// its key before it are taken: by receives of the key in front of this one and by wildcards.
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t keep_free(std::uint32_t first, std::uint32_t tried,
                                                        bool is_end) const {
    const std::uint32_t receive = lane_ < tried ? m_.wildcards[first + lane_] : 0;
    const typename storage::choice own = m_.now.chosen[lane_];
    const bool has_message = own.bit != 0;
    const std::uint32_t message = own.word * 32 + count_of_low_ones(own.bit - 1);
    const std::uint32_t slot = has_message ? m_.messages.slots[message] : storage::kNoSlot;
    const bool has_slot = slot != storage::kNoSlot;
    const unsigned alike = alike_of(slot, has_slot);
    const std::uint32_t rank = has_slot ? rank_of(message) : 0;
    std::uint32_t taken = has_slot ? m_.taken[slot] + count_of_ones(alike & lower_) : 0;
    const bool is_free = taken == 0 || planted(MatchFault::looks_are_stale) ||
                         rank >= chains_.receives_before(slot, receive) + taken;
    const std::uint32_t free = count_of_low_ones(warp_ballot(is_free));
    const std::uint32_t kept = free < tried ? free : tried;
    if (has_message && lane_ <= kept) note_gone(message);
    if (has_message && lane_ < kept) {
      ++taken;
      m_.limits[storage::place_of(message)] = storage::kTaken;
      m_.results[receive] = static_cast<std::uint16_t>(message);
      if (b_.receive_of_message != nullptr) store(b_.receive_of_message + message, receive);
    }
    const bool is_last = (alike & ones_below(kept) & ~lower_ & ~(1U << lane_)) == 0;
    if (has_slot && is_last && lane_ <= kept) {
      m_.taken[slot] = static_cast<std::uint16_t>(taken);
      if (kept < tried || !is_end) leave_out(slot, rank, taken, m_.wildcards[first + kept]);
    }
    warp_sync();
    return kept;
  }
  /// Messages of a key from `rank` on that are not free any more for that receive, nor for later
  /// ones.
  POLYPATH_DEVICE void leave_out(std::uint32_t slot, std::uint32_t rank, std::uint32_t taken,
                                 std::uint32_t receive) const {
    const std::uint32_t end = chains_.receives_before(slot, receive) + taken;
    for (; rank < end; ++rank)
      if (const std::uint32_t other = chains_.message_of(slot, rank); other != kNone)
        note_gone(other);
  }
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t rank_of(std::uint32_t message) const {
    return Chains<kCapacity>::rank_of(m_.messages.links[message]);
  }
  POLYPATH_DEVICE void note_gone(std::uint32_t message) const {
    in_shared::set(m_.now.gone + message / 32, 1U << message % 32);
  }
  /// The lanes with the same slot.
  [[nodiscard]] POLYPATH_DEVICE static unsigned alike_of(std::uint32_t slot, bool has_slot) {
    unsigned alike = warp_ballot(has_slot);
    POLYPATH_UNROLL
    for (std::uint32_t bit = 1; bit < storage::kSlots; bit *= 2) {
      const unsigned all = warp_ballot((slot & bit) != 0);
      alike &= (slot & bit) != 0 ? all : ~all;
    }
    return has_slot ? alike : 0;
  }
  POLYPATH_DEVICE static unsigned ones_below(std::uint32_t count) {
    return count < 32 ? (1U << count) - 1 : ~0U;
  }

  storage& m_;
  const Chains<kCapacity>& chains_;
  match_batch b_;
  unsigned rank_;
  unsigned size_;
  unsigned lane_;
  unsigned lower_;  // lanes below
};

}  // namespace polypath::device::detail
