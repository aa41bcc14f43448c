// matcher<partitioned>: messages and receives in their orders, no receive from any source; any tag
// is allowed. So sources do not depend on each other, and a batch is best one source's.
//
// A warp holds 64 messages in registers and goes through the receives: each takes the first free
// message that it accepts, found by one ballot, or two. More messages are matched 64 at a time;
// that is exact, because every receive prefers the earlier message. In a block each warp holds 64,
// and the receives pass from warp to warp, 64 at a time.
#pragma once

#include <cstdint>

#include "polypath/device/group.cuh"
#include "polypath/device/match_checks.cuh"
#include "polypath/device/matcher.cuh"
#include "polypath/device/planted.hpp"
#include "polypath/device/platform.cuh"

namespace polypath::device {

/// Defects of partitioned matching (planted.hpp).
enum class PartitionFault {
  none,
  taken_twice,         ///< a message stays free
  last_not_first,      ///< of the messages that a receive accepts
  tag_alone,           ///< source and communicator are not compared
  second_half_first,   ///< of the 64
  matched_taken_anew,  ///< a receive that has a message takes a later one, too
  no_barrier           ///< of a block: a warp looks before the one ahead has written
};

namespace detail {

/// 64 messages of a batch, two in each thread of a warp. Batch: as PlainBatch below.
class MessageWindow {
 public:
  static constexpr std::uint32_t kMessages = 64;

  template <typename Batch>
  POLYPATH_DEVICE MessageWindow(const Batch& batch, std::uint32_t first) : first_(first) {
    POLYPATH_UNROLL
    for (unsigned half = 0; half < 2; ++half) {
      const std::uint32_t index = first + half * kWarp + rank_in_warp();
      const bool is_there = index < batch.message_count();
      const envelope found = is_there ? batch.message(index) : envelope{};
      tag_[half] = found.tag;
      place_[half] = is_there ? place_of(found) : kGone;
    }
  }

  /// The receives from `at` on, 64 at most. `is_first`: none of them has looked before. Returns
  /// how many pairs this thread has made.
  template <typename Batch>
  POLYPATH_DEVICE std::uint32_t meet(const Batch& batch, std::uint32_t at, bool is_first) {
    envelope wanted[2];
    unsigned waiting[2];
    POLYPATH_UNROLL
    for (unsigned half = 0; half < 2; ++half) {
      const std::uint32_t index = at + half * kWarp + rank_in_warp();
      bool waits = index < batch.receive_count();
      wanted[half] = waits ? batch.receive(index) : envelope{};
      if (!is_first && waits && !planted(PartitionFault::matched_taken_anew))
        waits = batch.match(index) == kNone;
      waiting[half] = warp_ballot(waits);
    }
    std::uint32_t taker[2] = {kNone, kNone};
    POLYPATH_UNROLL
    for (unsigned half = 0; half < 2; ++half) {
      if (warp_any(wanted[half].tag == any_tag))
        meet<true>(wanted[half], waiting[half], half * kWarp, taker);
      else
        meet<false>(wanted[half], waiting[half], half * kWarp, taker);
    }
    return write(batch, at, is_first, taker);
  }

 private:
  /// Instead of source and communicator, of a message that is taken or none: no receive that is
  /// matched here has any source.
  static constexpr std::uint32_t kGone = 0xFFFFFFFF;

  POLYPATH_DEVICE static std::uint32_t place_of(const envelope& of) {
    return of.source | std::uint32_t{of.communicator} << 16;
  }

  /// 32 receives, one in each thread; those in `waiting` take part.
  template <bool kAnyTag>
  POLYPATH_DEVICE void meet(const envelope& wanted, unsigned waiting, unsigned first,
                            std::uint32_t (&taker)[2]) {
    constexpr unsigned kTogether = 4;
    const std::uint32_t tag = wanted.tag;
    const std::uint32_t place = place_of(wanted);
    if (waiting == ~0U) {
      POLYPATH_NO_UNROLL
      for (unsigned lane = 0; lane < kWarp; lane += kTogether) {
        POLYPATH_UNROLL
        for (unsigned i = 0; i < kTogether; ++i)
          take<kAnyTag>(warp_shuffle(tag, lane + i), warp_shuffle(place, lane + i),
                        first + lane + i, taker);
      }
      return;
    }
    POLYPATH_NO_UNROLL
    for (; waiting != 0; waiting &= waiting - 1) {
      const unsigned lane = count_of_low_ones(~waiting & (waiting - 1));
      take<kAnyTag>(warp_shuffle(tag, lane), warp_shuffle(place, lane), first + lane, taker);
    }
  }

  /// The first free message that the receive accepts notes the receive, and is gone.
  template <bool kAnyTag>
  POLYPATH_DEVICE void take(std::uint32_t tag, std::uint32_t place, unsigned receive,
                            std::uint32_t (&taker)[2]) {
    const bool is_any = kAnyTag && tag == any_tag;
    unsigned before = 0;
    POLYPATH_UNROLL
    for (unsigned i = 0; i < 2; ++i) {
      const unsigned half = planted(PartitionFault::second_half_first) ? 1 - i : i;
      const bool is_there =
          planted(PartitionFault::tag_alone) ? place_[half] != kGone : place_[half] == place;
      const bool accepts = before == 0 && is_there && (is_any || tag_[half] == tag);
      const unsigned all = warp_ballot(accepts);
      before |= all;
      if (!accepts || (all & ahead()) != 0) continue;
      if (!planted(PartitionFault::taken_twice)) place_[half] = kGone;
      taker[half] = receive;
    }
  }
  /// The threads that come before this one.
  POLYPATH_DEVICE static unsigned ahead() {
    const unsigned lower = (1U << rank_in_warp()) - 1;
    return planted(PartitionFault::last_not_first) ? ~lower << 1 : lower;
  }

  template <typename Batch>
  POLYPATH_DEVICE std::uint32_t write(const Batch& batch, std::uint32_t at, bool is_first,
                                      const std::uint32_t (&taker)[2]) const {
    if (is_first) {
      POLYPATH_UNROLL
      for (unsigned half = 0; half < 2; ++half) {
        const std::uint32_t index = at + half * kWarp + rank_in_warp();
        if (index < batch.receive_count()) batch.set_none(index);
      }
      warp_sync();  // in this order
    }
    std::uint32_t pairs = 0;
    POLYPATH_UNROLL
    for (unsigned half = 0; half < 2; ++half) {
      if (taker[half] == kNone) continue;
      batch.set_match(at + taker[half], first_ + half * kWarp + rank_in_warp());
      ++pairs;
    }
    warp_sync();
    return pairs;
  }

  std::uint32_t first_;
  std::uint32_t tag_[2];
  std::uint32_t place_[2];
};

/// A match_batch, as MessageWindow sees it.
class PlainBatch {
 public:
  POLYPATH_DEVICE explicit PlainBatch(const match_batch& of) : of_(of) {}

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
    return load(of_.message_of_receive + receive);
  }
  POLYPATH_DEVICE void set_none(std::uint32_t receive) const {
    store(of_.message_of_receive + receive, kNone);
  }
  POLYPATH_DEVICE void set_match(std::uint32_t receive, std::uint32_t message) const {
    store(of_.message_of_receive + receive, message);
    if (of_.receive_of_message != nullptr) store(of_.receive_of_message + message, receive);
  }

 private:
  const match_batch& of_;
};

/// All of a batch by one warp. Returns how many pairs this thread has made.
template <typename Batch>
POLYPATH_DEVICE std::uint32_t match_windows(const Warp&, const Batch& batch) {
  std::uint32_t pairs = 0;
  for (std::uint32_t first = 0; first == 0 || first < batch.message_count();
       first += MessageWindow::kMessages) {
    MessageWindow window(batch, first);
    for (std::uint32_t at = 0; at < batch.receive_count(); at += MessageWindow::kMessages)
      pairs += window.meet(batch, at, first == 0);
  }
  return pairs;
}
/// The same by a block: in step t warp w meets the receives t - w, 64 at a time.
template <typename Batch>
POLYPATH_DEVICE std::uint32_t match_windows(const Block& block, const Batch& batch) {
  constexpr std::uint32_t kMessages = MessageWindow::kMessages;
  const unsigned warps = block.size() / kWarp;
  const unsigned own = block.rank() / kWarp;
  const std::uint32_t parts = (batch.receive_count() + kMessages - 1) / kMessages;
  std::uint32_t pairs = 0;
  for (std::uint32_t first = 0; first == 0 || first < batch.message_count();
       first += warps * kMessages) {
    const std::uint32_t rest = (batch.message_count() - first + kMessages - 1) / kMessages;
    const std::uint32_t holders = rest == 0 ? 1 : rest < warps ? rest : warps;
    MessageWindow window(batch, first + own * kMessages);
    for (std::uint32_t step = 0; step < parts + holders - 1; ++step) {
      const std::uint32_t part = step - own;
      if (own < holders && part < parts)
        pairs += window.meet(batch, part * kMessages, first == 0 && own == 0);
      if (!planted(PartitionFault::no_barrier)) block.sync();
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
  template <typename Members>
  POLYPATH_DEVICE static match_outcome match(const Members& group, storage& memory,
                                             const match_batch& batch) {
    const match_outcome bad = detail::check_batch<partitioned>(group, memory, batch, kCapacity);
    if (bad.status != match_status::done) return bad;
    if (batch.receive_of_message != nullptr) {
      for (std::uint32_t i = group.rank(); i < batch.message_count; i += group.size())
        store(batch.receive_of_message + i, kNone);
      group.sync();  // in this order
    }
    const std::uint32_t pairs = detail::match_windows(group, detail::PlainBatch(batch));
    group.sync();
    return detail::outcome_of(batch, detail::sum_of(group, memory, pairs));
  }
};

}  // namespace polypath::device
