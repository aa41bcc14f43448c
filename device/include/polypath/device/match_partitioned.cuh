// matcher<partitioned>: messages and receives in their orders, no receive from any source; any tag
// is allowed. So sources do not depend on each other, and a batch is best one source's.
//
// A warp holds 64 messages in registers, and as many receives, of which each finds, in two words,
// which of the messages it accepts. Receives of one key accept the same ones, so the n-th of them
// takes the n-th that is free: all of a warp choose at once, but for those of any tag, which make
// runs of their own. More messages are matched 64 at a time; that is exact, because every receive
// prefers the earlier message. In a block each warp holds 64, and the receives pass from warp to
// warp, 64 at a time.
#pragma once

#include <cstdint>

#include "polypath/device/detail/batch_checks.cuh"
#include "polypath/device/detail/matcher.cuh"
#include "polypath/device/detail/mutants.hpp"
#include "polypath/device/group.cuh"
#include "polypath/device/platform.cuh"

namespace polypath::device {

namespace detail {

/// 64 messages of a batch, two in each thread of a warp. Batch: as plain_batch below.
class message_window {
 public:
  static constexpr std::uint32_t kMessages = 64;

  template <typename Batch>
  POLYPATH_DEVICE message_window(const Batch& batch, std::uint32_t first) : first_(first) {
    POLYPATH_UNROLL
    for (unsigned half = 0; half < 2; ++half) {
      const std::uint32_t index = first + half * kWarp + rank_in_warp();
      const bool is_there = index < batch.message_count();
      const envelope header = is_there ? batch.message(index) : envelope{};
      tag_[half] = header.tag;
      place_[half] = place_of(header);
      free_[half] = warp_ballot(is_there);
    }
    const std::uint32_t place = warp_shuffle(place_[0], 0);
    const auto is_same = [&](unsigned half) {
      return (free_[half] >> rank_in_warp() & 1) == 0 || place_[half] == place;
    };
    are_of_one_place_ = warp_all(is_same(0) && is_same(1));
    POLYPATH_MUTANT(partition_mutant::tag_alone, are_of_one_place_ = true)
  }

  /// The receives from `at` on, 64 at most. `is_first`: none of them has looked before. Returns
  /// how many pairs this thread has made.
  template <typename Batch>
  POLYPATH_DEVICE std::uint32_t meet(const Batch& batch, std::uint32_t at, bool is_first) {
    Receive receives[2];
    POLYPATH_UNROLL
    for (unsigned half = 0; half < 2; ++half) {
      const std::uint32_t index = at + half * kWarp + rank_in_warp();
      bool waits = index < batch.receive_count();
      const envelope pattern = waits ? batch.receive(index) : envelope{};
      POLYPATH_MUTANT_OMITS(partition_mutant::matched_taken_anew)
      if (!is_first && waits) waits = batch.match(index) == kNone;
      receives[half] = {pattern.tag, place_of(pattern), waits, {0, 0}};
    }
    if (are_of_one_place_)
      look<true>(receives);
    else
      look<false>(receives);
    std::uint32_t pairs = 0;
    POLYPATH_UNROLL
    for (unsigned half = 0; half < 2; ++half) {
      const std::uint32_t message = choose(receives[half]);
      const std::uint32_t index = at + half * kWarp + rank_in_warp();
      if (message != kNone) {
        batch.set_match(index, first_ + message);
        ++pairs;
      } else if (is_first && index < batch.receive_count()) {
        batch.set_none(index);
      }
    }
    return pairs;
  }

 private:
  struct Receive {
    std::uint32_t tag;
    std::uint32_t place;
    bool waits;
    unsigned accepted[2];  ///< a bit for each message, once it has looked
  };

  /// Source and communicator.
  POLYPATH_DEVICE static std::uint32_t place_of(const envelope& header) {
    return header.source | std::uint32_t{header.communicator} << 16;
  }

  /// Shows all messages to two receives of each thread.
  template <bool kOnePlace>
  POLYPATH_DEVICE void look(Receive (&receives)[2]) const {
    constexpr unsigned kTogether = 8;
    POLYPATH_UNROLL
    for (unsigned half = 0; half < 2; ++half) {
      POLYPATH_NO_UNROLL
      for (unsigned from = 0; from < kWarp; from += kTogether) {
        if ((free_[half] >> from & ((1U << kTogether) - 1)) == 0) continue;
        unsigned accepted[2] = {0, 0};
        POLYPATH_UNROLL
        for (unsigned i = 0; i < kTogether; ++i) {
          const std::uint32_t tag = warp_shuffle(tag_[half], from + i);
          const std::uint32_t place = kOnePlace ? 0 : warp_shuffle(place_[half], from + i);
          POLYPATH_UNROLL
          for (unsigned r = 0; r < 2; ++r)
            if ((receives[r].tag == any_tag || receives[r].tag == tag) &&
                (kOnePlace || receives[r].place == place))
              accepted[r] |= 1U << i;
        }
        receives[0].accepted[half] |= accepted[0] << from;
        receives[1].accepted[half] |= accepted[1] << from;
      }
    }
    const std::uint32_t only = warp_shuffle(place_[0], 0);
    POLYPATH_UNROLL
    for (unsigned r = 0; r < 2; ++r) {
      bool can_match = receives[r].waits && (!kOnePlace || receives[r].place == only);
      POLYPATH_MUTANT(partition_mutant::tag_alone, can_match = receives[r].waits)
      if (!can_match) receives[r].accepted[0] = receives[r].accepted[1] = 0;
    }
  }

  /// 32 receives in their order, one in each thread: each takes the first free message that it
  /// accepts: which of the 64, or kNone.
  POLYPATH_DEVICE std::uint32_t choose(const Receive& receive) {
    unsigned left = warp_ballot((receive.accepted[0] | receive.accepted[1]) != 0);
    const unsigned any_tags = warp_ballot(receive.tag == any_tag);
    std::uint32_t chosen = kNone;
    while (left != 0) {
      // Up to the first one of the other kind.
      const bool is_of_any = (any_tags & left & (~left + 1)) != 0;
      const unsigned others = left & (is_of_any ? ~any_tags : any_tags);
      unsigned run = left & ((others & (~others + 1)) - 1);
      POLYPATH_MUTANT(partition_mutant::kinds_at_once, run = left)
      left &= ~run;
      const bool is_in_run = (run >> rank_in_warp() & 1) != 0;
      const std::uint32_t choice = choose_at_once(receive, is_in_run);
      if (is_in_run) chosen = choice;
    }
    return chosen;
  }
  /// choose() for receives in a run: any two of them accept the same messages, or none that both
  /// do.
  POLYPATH_DEVICE std::uint32_t choose_at_once(const Receive& receive, bool is_in_run) {
    std::uint64_t open =
        (receive.accepted[0] & free_[0]) | std::uint64_t{receive.accepted[1] & free_[1]} << kWarp;
    if (!is_in_run) open = 0;
    // Receives that accept the same messages have the same first one.
    const unsigned first = first_of(open);
    unsigned alike = warp_ballot(open != 0);
    POLYPATH_UNROLL
    for (unsigned bit = 0; bit < 6; ++bit) {
      const bool is_set = (first >> bit & 1) != 0;
      const unsigned all = warp_ballot(is_set);
      alike &= is_set ? all : ~all;
    }
    unsigned ahead = popcount(alike & ((1U << rank_in_warp()) - 1));
    POLYPATH_MUTANT(partition_mutant::all_ranks_alike, ahead = 0)
    for (; ahead > 0 && open != 0; --ahead) open &= open - 1;
    POLYPATH_MUTANT(partition_mutant::last_not_first, while (open & (open - 1)) open &= open - 1)
    std::uint64_t own = open & (~open + 1);
    POLYPATH_MUTANT(partition_mutant::taken_twice, own = 0)
    free_[0] &= ~warp_bits(static_cast<unsigned>(own));
    free_[1] &= ~warp_bits(static_cast<unsigned>(own >> kWarp));
    return open != 0 ? first_of(open) : kNone;
  }
  POLYPATH_DEVICE static unsigned first_of(std::uint64_t bits) {
    const auto low = static_cast<unsigned>(bits);
    const auto high = static_cast<unsigned>(bits >> kWarp);
    const unsigned half = low != 0 ? low : high;
    return countr_one(~half & (half - 1)) + (low != 0 ? 0 : kWarp);
  }

  std::uint32_t first_;
  std::uint32_t tag_[2];
  std::uint32_t place_[2];
  unsigned free_[2];  ///< a bit for each, the same in all threads
  bool are_of_one_place_;
};

/// A match_batch, as message_window sees it.
class plain_batch {
 public:
  POLYPATH_DEVICE explicit plain_batch(const match_batch& batch) : of_(batch) {}

  [[nodiscard]] POLYPATH_DEVICE std::uint32_t message_count() const { return of_.message_count; }
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t receive_count() const { return of_.receive_count; }
  [[nodiscard]] POLYPATH_DEVICE envelope message(std::uint32_t i) const {
    return load(of_.messages + i);
  }
  [[nodiscard]] POLYPATH_DEVICE envelope receive(std::uint32_t i) const {
    return load(of_.receives + i);
  }
  /// What was set last of that receive.
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t match(std::uint32_t receive) const {
    return load(of_.matched_message + receive);
  }
  POLYPATH_DEVICE void set_none(std::uint32_t receive) const {
    store(of_.matched_message + receive, kNone);
  }
  POLYPATH_DEVICE void set_match(std::uint32_t receive, std::uint32_t message) const {
    store(of_.matched_message + receive, message);
    if (of_.matched_receive != nullptr) store(of_.matched_receive + message, receive);
  }

 private:
  const match_batch& of_;
};

/// All of a batch by one warp. Returns how many pairs this thread has made.
template <typename Batch>
POLYPATH_DEVICE std::uint32_t match_windows(const this_warp&, const Batch& batch) {
  std::uint32_t pairs = 0;
  for (std::uint32_t first = 0; first == 0 || first < batch.message_count();
       first += message_window::kMessages) {
    message_window window(batch, first);
    for (std::uint32_t at = 0; at < batch.receive_count(); at += message_window::kMessages)
      pairs += window.meet(batch, at, first == 0);
  }
  return pairs;
}
/// The same by a block: in step t warp w meets the receives t - w, 64 at a time.
template <typename Batch>
POLYPATH_DEVICE std::uint32_t match_windows(const this_block& block, const Batch& batch) {
  constexpr std::uint32_t kMessages = message_window::kMessages;
  const unsigned warps = block.size() / kWarp;
  const unsigned own = block.rank() / kWarp;
  const std::uint32_t parts = (batch.receive_count() + kMessages - 1) / kMessages;
  std::uint32_t pairs = 0;
  for (std::uint32_t first = 0; first == 0 || first < batch.message_count();
       first += warps * kMessages) {
    const std::uint32_t rest = (batch.message_count() - first + kMessages - 1) / kMessages;
    const std::uint32_t holders = rest == 0 ? 1 : rest < warps ? rest : warps;
    message_window window(batch, first + own * kMessages);
    for (std::uint32_t step = 0; step < parts + holders - 1; ++step) {
      const std::uint32_t part = step - own;
      if (own < holders && part < parts)
        pairs += window.meet(batch, part * kMessages, first == 0 && own == 0);
      POLYPATH_MUTANT_OMITS(partition_mutant::no_barrier)
      block.sync();
    }
  }
  return pairs;
}

}  // namespace detail

template <unsigned kCapacity>
class matcher<partitioned, kCapacity> {
  static_assert(kCapacity >= 32 && kCapacity <= 1024 && (kCapacity & (kCapacity - 1)) == 0,
                "the capacity of a matcher is a power of two, 32 to 1024");

 public:
  using storage = match_sums;

  /// `group`: a warp, or a block of one dimension and whole warps.
  template <typename Group>
  POLYPATH_DEVICE static match_outcome match(const Group& group, storage& memory,
                                             const match_batch& batch) {
    const match_outcome bad = detail::check_batch<partitioned>(group, memory, batch, kCapacity);
    if (bad.status != match_status::done) return bad;
    if (batch.matched_receive != nullptr) {
      for (std::uint32_t i = group.rank(); i < batch.message_count; i += group.size())
        store(batch.matched_receive + i, kNone);
      group.sync();  // in this order
    }
    const std::uint32_t pairs = detail::match_windows(group, detail::plain_batch(batch));
    group.sync();
    return detail::outcome_of(batch, detail::sum_of(group, memory, pairs));
  }
};

}  // namespace polypath::device
