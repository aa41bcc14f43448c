// What one warp does for the group that has a context of a channel (channel.cuh): it matches, moves
// small messages, and finds the large ones whose bytes the group must store.
#pragma once

#include <cstddef>
#include <cstdint>

#include "polypath/device/channel_view.hpp"
#include "polypath/device/detail/channel_lists.cuh"
#include "polypath/device/detail/channel_requests.cuh"
#include "polypath/device/detail/mutants.hpp"
#include "polypath/device/status.hpp"
#include "polypath/device/wait.cuh"

namespace polypath::device::detail {

/// Bytes that the group must store at the receiver.
struct channel_put {
  unsigned char* to;
  const unsigned char* from;
  std::uint64_t bytes;
  std::uint32_t rank;
  std::uint32_t receive;     ///< slot there
  std::uint32_t generation;  ///< of the receive
  std::uint32_t slot;        ///< of the send
  std::uint32_t place;       ///< in its list
};
struct channel_step {
  status result;
  std::uint32_t has_put;
  channel_put put;
  received got;
};

/// All threads of the warp make one, and call it alike. Thread r keeps the turns with rank r.
class channel_control : private channel_requests {
 public:
  using channel_requests::kNoWindow;
  using channel_requests::view;
  using channel_requests::window_of;

  POLYPATH_DEVICE channel_control(const View& view, std::uint32_t context)
      : channel_requests(view, context),
        posted_(mine_ + view.posted(), view.requests_log2),
        sends_(mine_ + view.sends(), view.requests_log2),
        unexpected_(mine_ + view.unexpected(), view.unexpected_log2) {}

  /// False: another group has the context.
  POLYPATH_DEVICE bool open() {
    std::uint64_t was_used = 0;
    if (rank_in_warp() == 0)
      was_used = device::compare_exchange<device_scope>(word(mine_ + View::kInUse),
                                                        std::uint64_t{0}, std::uint64_t{1});
    if (warp_shuffle(was_used, 0) != 0) return false;
    fence<device_scope>();
    warp_sync();
    const std::uint64_t* const own = turns_at();
    receive_turn_ = get(own);
    given_ = get(own + 1);
    send_turn_ = get(own + 2);
    used_ = static_cast<std::uint32_t>(get(own + 3));
    if (rank_in_warp() < view_.ranks)
      credit_ = load_relaxed<system_scope>(credit(mine_, rank_in_warp()));
    const std::uint64_t* const lists = word(mine_ + View::kLists);
    posted_.reopen(static_cast<std::uint32_t>(get(lists)));
    sends_.reopen(static_cast<std::uint32_t>(get(lists + 1)));
    unexpected_.reopen(static_cast<std::uint32_t>(get(lists + 2)));
    queued_ = sends_.is_empty() ? 0 : ~0U;
    return true;
  }
  POLYPATH_DEVICE void close() {
    std::uint64_t* const own = turns_at();
    store_relaxed<device_scope>(own, receive_turn_);
    store_relaxed<device_scope>(own + 1, given_);
    store_relaxed<device_scope>(own + 2, send_turn_);
    store_relaxed<device_scope>(own + 3, std::uint64_t{used_});
    std::uint64_t* const lists = word(mine_ + View::kLists);
    set(lists, posted_.end());
    set(lists + 1, sends_.end());
    set(lists + 2, unexpected_.end());
    warp_sync();  // all have stored theirs, and one says so
    fence<device_scope>();
    set(word(mine_ + View::kInUse), 0);
  }

  POLYPATH_DEVICE_NOINLINE channel_pending begin_send(std::uint32_t to, std::uint32_t tag,
                                                      const unsigned char* data,
                                                      std::uint64_t bytes) {
    bool waits_behind = (queued_ >> to & 1U) != 0;
    POLYPATH_MUTANT(channel_mutant::sends_overtake, waits_behind = false)
    if (bytes <= view_.eager_bytes && !waits_behind &&
        try_small(to, tag, data, static_cast<std::uint32_t>(bytes)))
      return {status::done, request::kNothing, 0};
    const channel_pending begun =
        take_slot(const_cast<unsigned char*>(data), bytes, kNoWindow);  // NOLINT: a send only reads
    if (begun.result != status::done) return begun;
    sends_.add({{tag, static_cast<std::uint16_t>(to), kQueued}, begun.slot});
    queued_ |= 1U << to;
    start_queued();
    return begun;
  }

  POLYPATH_DEVICE_NOINLINE channel_pending begin_receive(std::uint32_t source, std::uint32_t tag,
                                                         unsigned char* data, std::uint64_t bytes,
                                                         std::uint64_t window) {
    const channel_pending begun = take_slot(data, bytes, window);
    if (begun.result != status::done) return begun;
    const envelope pattern{tag, static_cast<std::uint16_t>(source),
                           static_cast<std::uint16_t>(context_)};
    channel_entry entry{};
    const auto fits = [&](const channel_entry& each) { return accepts(pattern, each.header); };
    std::uint32_t place = unexpected_.find(fits, entry);
    POLYPATH_MUTANT(channel_mutant::last_arrived_first, place = unexpected_.find(fits, entry, true))
    if (place == channel_list::kNowhere) {
      posted_.add({pattern, begun.slot});
      return begun;
    }
    deliver(begun.slot, entry.header, turn_of_unexpected(entry));
    unexpected_.remove(place);
    stalled_ = false;
    give_credit(entry.header.source);
    return begun;
  }

  /// Waits for the next message of `source`, and takes it out of the ring, when nothing else is
  /// under way. `in_progress`: something is, or it is not for this receive, or too long to be taken
  /// so.
  POLYPATH_DEVICE_NOINLINE channel_step receive_directly(std::uint32_t source, std::uint32_t tag,
                                                         unsigned char* data, std::uint64_t bytes) {
    channel_step step{};
    step.result = status::in_progress;
    if (!posted_.is_empty() || !unexpected_.is_empty() || !sends_.is_empty()) return step;
    const Units ring = ring_from(source);
    const std::uint64_t turn = warp_shuffle(receive_turn_, source);
    for (wait_timer watch;;) {
      Unit unit{};
      const unsigned there = warp_ballot(ring.get(turn + rank_in_warp(), unit));
      const std::uint32_t received_tag = warp_shuffle(unit.words[0], 0);
      const std::uint32_t length = warp_shuffle(unit.words[1], 0);
      std::uint32_t units = 1;
      if ((there & 1U) != 0) {
        if ((tag != any_tag && tag != received_tag) || (length & kLarge) != 0) return step;
        units = View::units_of(length);
        if (units > kWarp) return step;
      }
      if (countr_one(there) < units) {  // not all of it: its sender may never go on
        if (!is_in_time(watch, source)) {
          step.result = status::aborted;
          return step;
        }
        rest(request{});
        continue;
      }
      const std::uint32_t taken = length < bytes ? length : static_cast<std::uint32_t>(bytes);
      write_unit(data, rank_in_warp(), taken, unit);
      warp_sync();  // all have read
      if (rank_in_warp() == source) receive_turn_ += units;
      give_credit(source);
      step.got = {received_tag, source, taken};
      step.result = taken < length ? status::truncated : status::done;
      return step;
    }
  }

  /// Carries on what is under way, and looks at the request. `waits`: watches the time, and rests.
  POLYPATH_DEVICE_NOINLINE channel_step take_step(const request& handle, wait_timer& watch,
                                                  bool waits) {
    channel_step step{};
    drain();
    start_queued();
    step.has_put = next_put(step.put) ? 1 : 0;
    step.result = step.has_put != 0 ? status::in_progress : look_at(handle, step.got);
    if (step.has_put != 0) return step;
    if (!waits) {
      const bool ends = step.result != status::in_progress && handle.slot != request::kNothing;
      if (!ends && is_polled_in_vain()) step.result = status::aborted;
      return step;
    }
    if (step.result != status::in_progress) return step;
    if (!is_in_time(watch, handle.slot)) {
      step.result = status::aborted;
      return step;
    }
    rest(handle);
    return step;
  }

  POLYPATH_DEVICE void announce(const channel_put& transfer) const {
    if (rank_in_warp() == 0)
      Units(context_of(transfer.rank) + view_.arrivals(), view_.requests_log2)
          .put_each(this_thread{}, turn_of(transfer.receive, transfer.generation), Unit{});
  }
  POLYPATH_DEVICE void finish(const channel_put& transfer) {
    set_state(transfer.slot, kDone);
    sends_.remove(transfer.place);
  }

 private:
  static constexpr std::uint32_t kLarge = 0x80000000;
  enum : std::uint16_t { kQueued, kWaiting };  // a send, in its entry's communicator

  /// False: the wait of the warp timed out or was aborted.
  POLYPATH_DEVICE bool is_in_time(wait_timer& watch, std::uint64_t awaited) {
    if (++turns_ % kSpinsPerPoll != 0) return true;
    const bool speaks = rank_in_warp() == 0;
    const bool is_over = watch.is_over(view_.wait_ctx, speaks) && speaks;
    if (is_over)
      report(view_.wait_ctx, watch.reason(), {wait_error::kNobody, awaited, 0, view_.number, 0});
    return !warp_any(is_over);
  }

  /// Whether polling must end with an abort: checked at intervals.
  POLYPATH_DEVICE bool is_polled_in_vain() {
    return ++polls_ % kSpinsPerPoll == 0 && is_aborted(this_warp{}, view_.wait_ctx, view_.number);
  }

  // ---- sends ----

  /// Whether the ring has room for `units` more units.
  POLYPATH_DEVICE bool has_room(std::uint32_t to, std::uint32_t units) {
    bool has = true;
    if (rank_in_warp() == to && send_turn_ + units - credit_ > room()) {
      credit_ = load_relaxed<system_scope>(credit(mine_, to));
      has = send_turn_ + units - credit_ <= room();
      POLYPATH_MUTANT(channel_mutant::no_credit, has = true)
    }
    return warp_all(has);
  }
  POLYPATH_DEVICE void advance_sends(std::uint32_t to, std::uint32_t units) {
    if (rank_in_warp() == to) send_turn_ += units;
  }
  /// False: there is no room.
  POLYPATH_DEVICE bool try_small(std::uint32_t to, std::uint32_t tag, const unsigned char* data,
                                 std::uint32_t bytes) {
    const std::uint32_t units = View::units_of(bytes);
    if (!has_room(to, units)) return false;
    const Units ring = ring_to(to);
    const std::uint64_t turn = warp_shuffle(send_turn_, to);
    for (std::uint32_t i = rank_in_warp(); i < units; i += kWarp) {
      Unit unit{};
      if (i == 0) {
        unit = {{tag, bytes, 0}};
        channel_bytes::read(data, bytes < 4 ? bytes : 4, unit.words + 2);
      } else {
        const std::uint32_t first = 4 + 12 * (i - 1);
        channel_bytes::read(data + first, bytes - first < 12 ? bytes - first : 12, unit.words);
      }
      ring.put_each(this_thread{}, turn + i, unit);
    }
    warp_sync();
    advance_sends(to, units);
    return true;
  }
  POLYPATH_DEVICE bool try_large(std::uint32_t to, std::uint32_t tag, std::uint32_t slot,
                                 const Slot& message) {
    if (!has_room(to, 2)) return false;
    const Units ring = ring_to(to);
    const std::uint64_t turn = warp_shuffle(send_turn_, to);
    if (rank_in_warp() == 0)
      ring.put_each(this_thread{}, turn, Unit{{tag, kLarge | slot, message.generation}});
    if (rank_in_warp() == 1)
      ring.put_each(this_thread{}, turn + 1,
                    Unit{{static_cast<std::uint32_t>(message.bytes),
                          static_cast<std::uint32_t>(message.bytes >> 32), 0}});
    warp_sync();
    advance_sends(to, 2);
    return true;
  }
  /// What waits for room, in the order in which it was sent to each rank.
  POLYPATH_DEVICE void start_queued() {
    if (queued_ == 0) return;
    std::uint32_t blocked = 0;
    for (;;) {
      channel_entry entry{};
      const std::uint32_t place = sends_.find(
          [&](const channel_entry& each) {
            return each.header.communicator == kQueued && (blocked >> each.header.source & 1U) == 0;
          },
          entry);
      if (place == channel_list::kNowhere) break;
      const Slot slot = slot_of(entry.value);
      const std::uint32_t to = entry.header.source;
      if (slot.bytes <= view_.eager_bytes) {
        if (try_small(to, entry.header.tag, slot.buffer, static_cast<std::uint32_t>(slot.bytes))) {
          set_state(entry.value, kDone);
          sends_.remove(place);
          continue;
        }
      } else if (try_large(to, entry.header.tag, entry.value, slot)) {
        entry.header.communicator = kWaiting;
        sends_.change(place, entry);
        continue;
      }
      blocked |= 1U << to;
    }
    queued_ = blocked;
  }
  /// A large message that has been granted its place.
  POLYPATH_DEVICE bool next_put(channel_put& put) {
    if (sends_.is_empty()) return false;
    const Grants grants(mine_ + view_.grants(), view_.requests_log2);
    const auto turn = [&](std::uint32_t slot) {
      return turn_of(slot, static_cast<std::uint32_t>(get(slot_at(slot))));
    };
    channel_entry entry{};
    channel_cts grant{};
    const std::uint32_t place = sends_.find(
        [&](const channel_entry& each) {
          channel_cts seen;
          return each.header.communicator == kWaiting && grants.get(turn(each.value), seen);
        },
        entry);
    if (place == channel_list::kNowhere) return false;
    (void)grants.get(turn(entry.value), grant);
    const Slot slot = slot_of(entry.value);
    const std::uint32_t window = grant.place >> channel_cts::kSlotBits;
    put.bytes = join(grant.bytes);
    put.to = reinterpret_cast<unsigned char*>(table(window + 1, entry.header.source)) +
             join(grant.offset);
    put.from = slot.buffer;
    put.rank = entry.header.source;
    put.receive = grant.place & ((1U << channel_cts::kSlotBits) - 1);
    put.generation = grant.generation;
    put.slot = entry.value;
    put.place = place;
    return true;
  }

  // ---- receives ----

  /// Takes what has come, one message of each rank.
  POLYPATH_DEVICE void drain() {
    Unit unit;
    bool has = false;
    if (rank_in_warp() < view_.ranks) has = ring_from(rank_in_warp()).get(receive_turn_, unit);
    unsigned those = warp_ballot(has);
    stalled_ = stalled_ && those != 0;
    for (std::uint32_t i = 0; those != 0 && i < view_.ranks; ++i) {
      const std::uint32_t source = (first_ + i) % view_.ranks;
      if ((those >> source & 1U) != 0) accept(source);
    }
    first_ = (first_ + 1) % view_.ranks;
  }
  POLYPATH_DEVICE void accept(std::uint32_t source) {
    const Units ring = ring_from(source);
    const std::uint64_t turn = warp_shuffle(receive_turn_, source);
    Unit unit{};
    unsigned there = warp_ballot(ring.get(turn + rank_in_warp(), unit));
    const envelope header{warp_shuffle(unit.words[0], 0), static_cast<std::uint16_t>(source),
                          static_cast<std::uint16_t>(context_)};
    const std::uint32_t kind = warp_shuffle(unit.words[1], 0);
    const std::uint32_t units = (kind & kLarge) != 0 ? 2 : View::units_of(kind);
    for (std::uint32_t done = 0;;) {
      POLYPATH_MUTANT(channel_mutant::part_of_a_message, break)
      const std::uint32_t batch_units = units - done < kWarp ? units - done : kWarp;
      if (countr_one(there) < batch_units) return;  // not all of it
      done += batch_units;
      if (done == units) break;
      there = warp_ballot(ring.get(turn + done + rank_in_warp(), unit));
    }
    channel_entry entry{};
    const auto fits = [&](const channel_entry& each) { return accepts(each.header, header); };
    std::uint32_t place = posted_.find(fits, entry);
    POLYPATH_MUTANT(channel_mutant::last_posted_first, place = posted_.find(fits, entry, true))
    if (place != channel_list::kNowhere) {
      deliver(entry.value, header, turn);
      posted_.remove(place);
    } else if (!unexpected_.add({header, static_cast<std::uint32_t>(turn)})) {
      stalled_ = true;  // it stays in its ring, and all after it
      return;
    }
    if (rank_in_warp() == source) receive_turn_ += units;
    give_credit(source);
  }
  [[nodiscard]] POLYPATH_DEVICE std::uint64_t turn_of_unexpected(const channel_entry& entry) const {
    const std::uint64_t next = warp_shuffle(receive_turn_, entry.header.source);
    return next - static_cast<std::uint32_t>(static_cast<std::uint32_t>(next) - entry.value);
  }

  /// The message at `turn` is the receive's.
  POLYPATH_DEVICE void deliver(std::uint32_t to, const envelope& header, std::uint64_t turn) {
    const Units ring = ring_from(header.source);
    const Slot slot = slot_of(to);
    Unit unit{};
    (void)ring.get(turn, unit);
    if ((unit.words[1] & kLarge) != 0) {
      grant(to, slot, header, unit.words[1] & ~kLarge, unit.words[2], turn);
      return;
    }
    const std::uint32_t bytes = unit.words[1];
    const std::uint32_t taken = bytes < slot.bytes ? bytes : static_cast<std::uint32_t>(slot.bytes);
    const std::uint32_t units = View::units_of(bytes);
    for (std::uint32_t i = rank_in_warp(); i < units; i += kWarp) {
      (void)ring.get(turn + i, unit);
      write_unit(slot.buffer, i, taken, unit);
    }
    warp_sync();  // all have read
    set_result(to, kDone, {header.tag, header.source, taken},
               taken < bytes ? status::truncated : status::done);
  }
  /// What unit `i` has of the first `taken` bytes of a message.
  POLYPATH_DEVICE static void write_unit(unsigned char* to, std::uint32_t i, std::uint32_t taken,
                                         const Unit& unit) {
    const std::uint32_t first = i == 0 ? 0 : 4 + 12 * (i - 1);
    const std::uint32_t most = i == 0 ? 4 : 12;
    if (first < taken)
      channel_bytes::write(to + first, taken - first < most ? taken - first : most,
                           unit.words + (i == 0 ? 2 : 0));
  }
  POLYPATH_DEVICE void grant(std::uint32_t to, const Slot& slot, const envelope& header,
                             std::uint32_t send, std::uint32_t generation, std::uint64_t turn) {
    Unit second{};
    (void)ring_from(header.source).get(turn + 1, second);
    const std::uint64_t bytes = second.words[0] | std::uint64_t{second.words[1]} << 32;
    std::uint64_t taken = bytes < slot.bytes ? bytes : slot.bytes;
    std::uint64_t window = slot.window;
    if (window == kNoWindow) {  // of a small receive: nothing can be put there
      taken = 0;
      window = 0;
    }
    set_result(to, kArriving, {header.tag, header.source, taken},
               taken < bytes ? status::truncated : status::done);
    const std::uint64_t offset = window & (~std::uint64_t{0} >> 8);
    const std::uint32_t place = to | static_cast<std::uint32_t>(window >> 56)
                                         << channel_cts::kSlotBits;
    if (rank_in_warp() == 0)
      Grants(context_of(header.source) + view_.grants(), view_.requests_log2)
          .put_each(
              this_thread{}, turn_of(send, generation),
              channel_cts{
                  {static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(offset >> 32)},
                  {static_cast<std::uint32_t>(taken), static_cast<std::uint32_t>(taken >> 32)},
                  place,
                  slot.generation});
    warp_sync();
  }
  /// Returns credit to the sender for the units before the first unexpected message.
  POLYPATH_DEVICE void give_credit(std::uint32_t source) {
    std::uint64_t read = warp_shuffle(receive_turn_, source);
    bool keeps_messages = !unexpected_.is_empty();
    POLYPATH_MUTANT(channel_mutant::unexpected_forgotten, keeps_messages = false)
    if (keeps_messages) {
      channel_entry oldest{};
      if (unexpected_.find([&](const channel_entry& each) { return each.header.source == source; },
                           oldest) != channel_list::kNowhere)
        read = turn_of_unexpected(oldest);
    }
    if (rank_in_warp() != source || read - given_ < room() / 8) return;
    given_ = read;
    store_relaxed<system_scope>(credit(context_of(source), view_.rank), read);
  }

  /// Between two looks that found nothing.
  POLYPATH_DEVICE void rest([[maybe_unused]] const request& handle) {
#if !defined(__CUDACC__)
    // One thread sleeps for the warp, so it looks at all that would wake one of the others.
    bool is_something = false;
    const bool speaks = rank_in_warp() == 0;
    for (std::uint32_t rank = 0; rank < view_.ranks; ++rank) {
      const std::uint64_t turn = warp_shuffle(receive_turn_, rank);
      const std::uint64_t known = warp_shuffle(credit_, rank);
      Unit unit;
      if (!speaks) continue;
      if (!stalled_ && ring_from(rank).get(turn, unit)) is_something = true;
      if ((queued_ >> rank & 1U) != 0 && load_relaxed<system_scope>(credit(mine_, rank)) != known)
        is_something = true;
    }
    const Grants grants(mine_ + view_.grants(), view_.requests_log2);
    for (std::uint32_t place = 0; speaks && place < sends_.end(); ++place) {
      channel_entry entry{};
      channel_cts grant;
      if (!sends_.get(place, entry) || entry.header.communicator != kWaiting) continue;
      const auto generation = static_cast<std::uint32_t>(get(slot_at(entry.value)));
      if (grants.get(turn_of(entry.value, generation), grant)) is_something = true;
    }
    Unit nothing;
    if (speaks && handle.slot != request::kNothing &&
        Units(mine_ + view_.arrivals(), view_.requests_log2)
            .get(turn_of(handle.slot, handle.generation), nothing))
      is_something = true;
    if (speaks && !is_something) spin_pause();
    if (!speaks) stop_watching();
    warp_sync();
#endif
  }

  channel_list posted_;
  channel_list sends_;
  channel_list unexpected_;
  // For the rank of this thread:
  std::uint64_t receive_turn_ = 0;  ///< the next unit to come
  std::uint64_t given_ = 0;         ///< credit that it has
  std::uint64_t send_turn_ = 0;
  std::uint64_t credit_ = 0;  ///< that it gave
  // For all ranks:
  std::uint32_t queued_ = 0;  ///< ranks that sends wait for room to
  std::uint32_t first_ = 0;   ///< rank to look at first
  std::uint32_t turns_ = 0;
  std::uint32_t polls_ = 0;  ///< steps that did not wait
  bool stalled_ = false;     ///< what has come finds no place
};

}  // namespace polypath::device::detail
