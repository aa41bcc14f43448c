// What kernels of tests do with queues and pairs: they push items that name their sender, or pop,
// and write down what came.
#pragma once

#include "polypath/device/queue.cuh"
#include "polypath/device/spsc_queue.cuh"
#include "queue_kernels.h"
#include "simt/platform.cuh"

namespace polypath::test {

template <unsigned kWords>
struct Item {
  std::uint32_t words[kWords];
};

SIMT_DEVICE std::uint32_t word_of(std::uint32_t team, std::uint32_t number, std::uint32_t place) {
  std::uint32_t value = team * 0x9E3779B9U + number * 0x85EBCA6BU + place * 0xC2B2AE35U;
  value = (value ^ value >> 16) * 0x7FEB352DU;
  return value ^ value >> 15;
}
template <unsigned kWords>
SIMT_DEVICE Item<kWords> make_item(std::uint32_t team, std::uint32_t number) {
  Item<kWords> item;
  item.words[0] = team;
  item.words[1] = number;
  for (unsigned i = 2; i < kWords; ++i) item.words[i] = word_of(team, number, i);
  return item;
}
template <unsigned kWords>
SIMT_DEVICE void write_down(PoppedItem* at, const Item<kWords>& item, bool is_right,
                            device::status result) {
  for (unsigned i = 2; i < kWords; ++i)
    is_right = is_right && item.words[i] == word_of(item.words[0], item.words[1], i);
  simt::store(&at->team, item.words[0]);
  simt::store(&at->number, item.words[1]);
  simt::store(&at->is_right, is_right ? 1U : 0U);
  simt::store(&at->result, static_cast<std::uint32_t>(result));
}

SIMT_DEVICE simt::this_thread team_of(const simt::this_thread&) { return simt::this_thread{}; }
SIMT_DEVICE simt::this_warp team_of(const simt::this_warp&) { return simt::this_warp{}; }
SIMT_DEVICE simt::this_warp team_of(const simt::this_block&) { return simt::this_warp{}; }
template <typename Team>
SIMT_DEVICE unsigned team_number(const Team& team) {
  return (simt::block_index() * simt::block_size() + simt::thread_index()) / team.size();
}

template <typename Group, unsigned kWords, unsigned kItems, typename Scope = device::device_scope,
          typename Layout = device::ll>
class QueueRun {
  using It = Item<kWords>;
  using Queue = device::queue<It, Scope, Layout>;

 public:
  SIMT_DEVICE static void push(const QueueRow& row) {
    const Queue queue(row.view);
    const auto team = team_of(Group{});
    const unsigned own = team_number(team);
    for (unsigned call = 0; call < row.pushes; ++call) {
      pause(row);
      It items[kItems];
      for (unsigned i = 0; i < kItems; ++i)
        items[i] = make_item<kWords>(own, (call * kItems + i) * team.size() + team.rank());
      if (row.calls == Calls::waiting) {
        queue.push(Group{}, items);
      } else if (row.calls == Calls::publishing) {
        for (unsigned i = 0; i < kItems; ++i)
          simt::store(place(row, items[i]), word_of(items[i].words[0], items[i].words[1], 1));
        queue.push_release(Group{}, items);
      } else {
        for (unsigned i = 0; i < kItems; ++i)
          while (queue.try_push(Group{}, items[i]) == device::status::full) rest(team);
      }
    }
  }

  SIMT_DEVICE static void pop(const QueueRow& row) {
    const Queue queue(row.view);
    const auto team = team_of(Group{});
    PoppedItem* out = row.popped + team_number(team) * row.room;
    PoppedItem* const end = out + row.room;
    for (unsigned call = 0;; ++call) {
      It items[kItems];
      pause(row);
      unsigned got = 0;
      device::status result = device::status::done;
      if (row.calls == Calls::trying) {
        result = queue.try_pop(Group{}, items[0]);
        got = result == device::status::done ? 1 : 0;
        if (!any(team, got != 0)) {
          if (result == device::status::closed || queue.is_aborted(Group{})) return;
          rest(team);
          continue;
        }
      } else if (row.calls == Calls::publishing) {
        touch(row, call);
        result = queue.pop_acquire(Group{}, items, &got);
      } else {
        result = queue.pop(Group{}, items, &got);
      }
      const unsigned most = row.calls == Calls::trying ? 1 : kItems;
      for (unsigned i = 0; i < most && out < end; ++i, out += team.size()) {
        if (i >= got) continue;
        bool is_right = true;
        if (row.calls == Calls::publishing)
          is_right =
              simt::load(place(row, items[i])) == word_of(items[i].words[0], items[i].words[1], 1);
        write_down(out + team.rank(), items[i], is_right, result);
      }
      if (any(team, result == device::status::closed || result == device::status::aborted)) return;
    }
  }

 private:
  SIMT_DEVICE static void pause(const QueueRow& row) {
    if (row.pause_us != 0) simt::sleep_ns(row.pause_us * 1000);
  }
  SIMT_DEVICE static std::uint32_t* place(const QueueRow& row, const It& item) {
    const auto team = team_of(Group{});
    return row.elsewhere + item.words[0] * (row.pushes * kItems * team.size()) + item.words[1];
  }
  /// Loads what is not there yet, where the next items may point to: it may be kept.
  SIMT_DEVICE static void touch(const QueueRow& row, unsigned call) {
    const auto team = team_of(Group{});
    const unsigned of_team = row.pushes * kItems * team.size();
    for (unsigned pusher = 0; pusher < row.pushers && pusher < 8; ++pusher)
      (void)simt::load(row.elsewhere + pusher * of_team +
                       (call * team.size() + team.rank()) % of_team);
  }
  SIMT_DEVICE static bool any(const simt::this_thread&, bool value) { return value; }
  SIMT_DEVICE static bool any(const simt::this_warp&, bool value) { return simt::warp_any(value); }
  template <typename Team>
  SIMT_DEVICE static void rest(const Team& team) {
    if (team.is_leader()) simt::spin_pause();
    team.sync();
  }
};

template <typename Group, unsigned kWords, unsigned kItems, typename Scope = device::device_scope,
          typename Layout = device::ll>
SIMT_DEVICE_NOINLINE void run_pair(const PairRow& row, bool pushes) {
  const Group group{};
  const unsigned own = simt::thread_index() / group.size();
  device::spsc_view view = row.view;
  view.cells += own * row.cell_bytes;
  view.credit += own * 16;
  view.sent += own * 16;
  view.received += own * 16;
  using It = Item<kWords>;
  It items[kItems];
  if (pushes) {
    device::spsc_producer<It, Scope, Layout> pair(view);
    for (unsigned call = 0; call < row.calls; ++call) {
      for (unsigned i = 0; i < kItems; ++i)
        items[i] =
            make_item<kWords>(own, row.first + (call * kItems + i) * group.size() + group.rank());
      if (pair.push(group, items) != device::status::done) break;
    }
    pair.leave(group);
  } else {
    device::spsc_consumer<It, Scope, Layout> pair(view);
    PoppedItem* out = row.popped + own * row.room;
    for (unsigned call = 0; call < row.calls; ++call) {
      const device::status result = pair.pop(group, items);
      for (unsigned i = 0; i < kItems; ++i, out += group.size())
        write_down(out + group.rank(), items[i], true, result);
      if (result != device::status::done) break;
    }
    pair.leave(group);
  }
}

}  // namespace polypath::test
