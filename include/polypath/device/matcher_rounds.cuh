// Receives with wildcards of a warp or block: they choose one after another, in rounds.
//
// While the first warp decides a round, the others find what each of the next one may choose among:
// the first messages that it accepts and that were free for it when they looked. What is not free
// never will be, and each receive that was undecided then takes no more than one message, so one
// more than there are of those is enough. At a receive's turn nothing is looked at but how many
// messages wildcards have taken of each key, which is all that may have changed.
#pragma once

#include "polypath/device/matcher_chains.cuh"

namespace polypath::device::detail {

template <unsigned kCapacity>
class WildcardRounds {
 public:
  using storage = mpi_storage<kCapacity>;
  using candidate = typename storage::candidate;

  POLYPATH_DEVICE WildcardRounds(storage& memory, const Chains<kCapacity>& chains,
                                 const match_batch& batch, unsigned rank, unsigned size)
      : m_(memory),
        chains_(chains),
        b_(batch),
        rank_(rank),
        size_(size),
        lane_(rank % kWarp),
        print_(batch.seed, 15) {}

  /// Behind Chains::enter_messages, before the next barrier.
  POLYPATH_DEVICE void prepare() const {
    for (std::uint32_t i = rank_; i < storage::kSlots + b_.message_count; i += size_)
      m_.taken[i] = 0;
    for (std::uint32_t i = rank_; i - lane_ < b_.message_count; i += size_) {
      const std::uint32_t place = storage::place_of(i);
      if (i >= b_.message_count) {
        m_.limits[place] = 0;
        continue;
      }
      const envelope message = envelope_of(chains_.message_at(i));
      for (unsigned kind = 1; kind < 4; ++kind)
        m_.seen.prints[kind - 1][place] =
            static_cast<std::uint16_t>(print_(pattern_of(message, kind)));
    }
    const std::uint32_t bits = lane_ < words_of(b_.receive_count) ? m_.wildcard_bits[lane_] : 0;
    const std::uint32_t before = sum_up_to_me(count_of_ones(bits)) - count_of_ones(bits);
    for (std::uint32_t i = rank_; i - lane_ < b_.receive_count; i += size_) {
      const std::uint32_t word = warp_shuffle(bits, i / kWarp);
      const std::uint32_t of_warp = warp_shuffle(before, i / kWarp);
      std::uint32_t rank = of_warp + count_of_ones(word & ((1U << lane_) - 1));
      if (planted(MatchFault::wildcards_in_no_order))
        rank = of_warp + count_of_ones(word >> lane_) - 1;
      if ((word >> lane_ & 1) != 0) m_.wildcards[rank] = static_cast<std::uint16_t>(i);
    }
  }

  template <typename Members>
  POLYPATH_DEVICE void choose(const Members& group) const {
    const std::uint32_t count = wildcards();
    const unsigned warp = rank_ / kWarp;
    const unsigned others = size_ / kWarp - 1;
    const unsigned finders = others == 0 ? 1 : others;
    const unsigned of_a_round = finders >= kRound ? kRound : kRound / finders * finders;
    for (std::uint32_t begin = 0, round = 0; begin < count + of_a_round;
         begin += of_a_round, ++round) {
      if (warp == 0 && begin != 0)
        decide(m_.seen.rows[(round + 1) % 2], begin - of_a_round, count, of_a_round);
      if (warp != 0 || others == 0)
        for (unsigned row = others == 0 ? 0 : warp - 1; row < of_a_round; row += finders)
          if (begin + row < count)
            find_candidates(m_.seen.rows[round % 2][row], m_.wildcards[begin + row],
                            of_a_round + row + 1);
      if (!planted(MatchFault::no_barrier_of_rounds) || round < 2) group.sync();
    }
  }

 private:
  [[nodiscard]] POLYPATH_DEVICE static std::uint32_t words_of(std::uint32_t count) {
    return (count + 31) / 32;
  }
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t wildcards() const {
    const std::uint32_t own =
        lane_ < words_of(b_.receive_count) ? count_of_ones(m_.wildcard_bits[lane_]) : 0;
    return warp_shuffle(sum_up_to_me(own), kWarp - 1);
  }

  /// By the first warp: a round's receives take messages, in their order.
  POLYPATH_DEVICE void decide(const candidate (*rows)[kCandidates], std::uint32_t begin,
                              std::uint32_t count, unsigned of_a_round) const {
    const std::uint32_t end = count - begin < of_a_round ? count - begin : of_a_round;
    const std::uint32_t my_receive = lane_ < end ? m_.wildcards[begin + lane_] : 0;
    candidate next = rows[0][lane_];
    POLYPATH_NO_UNROLL
    for (std::uint32_t row = 0; row < end; ++row) {
      const candidate own = next;
      next = rows[(row + 1) % kRound][lane_];
      const std::uint32_t receive = warp_shuffle(my_receive, row);
      const std::uint32_t slot = own.slot();
      const std::uint32_t taken = m_.taken[slot];
      const bool is_free = taken < own.limit();
      const unsigned free = warp_ballot(is_free);
      if (is_free && (free & ((1U << lane_) - 1)) == 0) {
        if (!planted(MatchFault::looks_are_stale))
          m_.taken[slot] = static_cast<std::uint16_t>(taken + 1);
        m_.limits[own.place()] = 0;
        m_.results[receive] = static_cast<std::uint16_t>(own.message());
        if (b_.receive_of_message != nullptr) store(b_.receive_of_message + own.message(), receive);
      }
      warp_sync();
    }
  }

  /// By a warp: the first `wanted` messages that are free for the receive, or all there are.
  POLYPATH_DEVICE void find_candidates(candidate* row, std::uint32_t receive,
                                       std::uint32_t wanted) const {
    const envelope pattern = load(b_.receives + receive);
    std::uint32_t mine = look(pattern, receive);
    std::uint32_t found = 0;
    POLYPATH_NO_UNROLL
    for (;;) {
      // Each lane has the bits of 32 messages; of all bits each takes one.
      const std::uint32_t up_to_me = sum_up_to_me(count_of_ones(mine));
      const std::uint32_t all = warp_shuffle(up_to_me, kWarp - 1);
      const std::uint32_t message = one_of_all(mine, up_to_me - count_of_ones(mine));
      candidate own{};
      const bool is_one = lane_ < all && is_free(message, pattern, receive, own);
      const unsigned ones = warp_ballot(is_one);
      const std::uint32_t at = found + count_of_ones(ones & ((1U << lane_) - 1));
      if (is_one && at < kCandidates) row[at] = own;
      found += count_of_ones(ones);
      if (found >= wanted || all <= kWarp || planted(MatchFault::first_of_a_look)) break;
      const std::uint32_t last = warp_shuffle(message, kWarp - 1);
      if (lane_ <= last / 32) mine &= lane_ == last / 32 ? ~1U << last % 32 : 0;
    }
    if (lane_ >= found) row[lane_] = candidate{};  // no limit, so never free
    warp_sync();
  }

  /// The lane's 32 messages, a bit each: those that the pattern may accept, by its print, and that
  /// no receive before this one would take if there were no wildcards.
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t look(const envelope& pattern,
                                                   std::uint32_t receive) const {
    const unsigned kind = kind_of(pattern);
    if (lane_ >= words_of(b_.message_count)) return 0;
    if (kind == 3 && planted(MatchFault::no_any_any)) return 0;
    // Two of 15 bits are compared at once: sums whose bits 15 and 31 say what is more, or not 0.
    const std::uint32_t wanted = print_(bits_of(pattern)) * 0x10001;
    const std::uint32_t least = planted(MatchFault::wildcards_overtake) ? 1 : receive + 2;
    const std::uint32_t up_to = (0x8000 - least) * 0x10001;
    std::uint32_t bits = 0;
    POLYPATH_UNROLL
    for (unsigned part = 0; part < 4; ++part) {
      const std::uint32_t at = part * storage::kStride + lane_ * 8;
      const auto prints = words_at(m_.seen.prints[kind - 1] + at);
      const auto limits = words_at(m_.limits + at);
      POLYPATH_UNROLL
      for (unsigned i = 0; i < 4; ++i) {
        const std::uint32_t is_other = (prints.values[i] ^ wanted) + 0x7FFF7FFF;
        const std::uint32_t is_late = limits.values[i] + up_to;
        bits |= (is_late & ~is_other & 0x80008000) >> (15 - (part * 4 + i));
      }
    }
    return bits;
  }
  POLYPATH_DEVICE static Sixteen<std::uint32_t> words_at(const std::uint16_t* halves) {
    Sixteen<std::uint32_t> words;
    std::memcpy(&words, __builtin_assume_aligned(halves, 16), sizeof(words));
    return words;
  }

  /// The message of the bit that has the lane's number among those of all lanes: `before` of them
  /// are those of earlier lanes. Any where there are fewer.
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t one_of_all(std::uint32_t mine,
                                                         std::uint32_t before) const {
    std::uint32_t owner = 0;
    POLYPATH_UNROLL
    for (unsigned step = kWarp / 2; step > 0; step /= 2)
      if (warp_shuffle(before, owner + step) <= lane_) owner += step;
    const std::uint32_t word = warp_shuffle(mine, owner);
    const std::uint32_t n = lane_ - warp_shuffle(before, owner);
    return owner * 32 + place_of_one(word, n);
  }

  /// What a message looks like to a receive; false: it is taken, or not what is asked for.
  [[nodiscard]] POLYPATH_DEVICE bool is_free(std::uint32_t message, const envelope& pattern,
                                             std::uint32_t receive, candidate& as) const {
    const bool is_wanted = accepts(pattern, envelope_of(load_key(b_.messages + message))) ||
                           planted(MatchFault::prints_are_believed);
    std::uint32_t slot = m_.messages.slots[message];
    std::uint32_t limit = 1;
    if (slot == storage::kNoSlot) {
      slot = storage::kSlots + message;
    } else {
      limit += Chains<kCapacity>::rank_of(m_.messages.links[message]);
      // No more than the limit, or the receive of the message's rank were in front of this one;
      // orders that are planted wrong must not reach beyond the tables.
      const std::uint32_t before = chains_.receives_before(slot, receive);
      if (!planted(MatchFault::wildcards_overtake)) limit -= before < limit ? before : limit;
    }
    as = {slot | message << 16, limit | storage::place_of(message) << 16};
    return is_wanted && (m_.taken[slot] < limit || planted(MatchFault::taken_are_candidates));
  }

  storage& m_;
  const Chains<kCapacity>& chains_;
  match_batch b_;
  unsigned rank_;
  unsigned size_;
  unsigned lane_;
  SlotHash print_;
};

}  // namespace polypath::device::detail
