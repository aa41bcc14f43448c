// What the kernels of queues and pairs do: push as fast as they can, or pop, and check each item.
#pragma once

#include "items.cuh"
#include "polypath/device/queue.cuh"
#include "polypath/device/spsc_queue.cuh"

namespace messaging_bench {

SIMT_DEVICE simt::this_thread queue_team(const simt::this_thread&) { return simt::this_thread{}; }
SIMT_DEVICE simt::this_warp queue_team(const simt::this_warp&) { return simt::this_warp{}; }

template <typename Team, unsigned kWords, unsigned kItems, typename Scope = device::device_scope,
          typename Layout = device::ll>
SIMT_DEVICE void run_queue(const QueueRun& run) {
  using It = Item<kWords>;
  const Team team{};
  const device::queue<It, Scope, Layout> queue(run.view);
  const std::uint64_t block = simt::block_index();
  It items[kItems] = {};
  if (block < run.producers) {
    const std::uint64_t own = (block * simt::block_size() + simt::thread_index()) / team.size();
    for (std::uint32_t call = 0; call < run.calls; ++call) {
      const std::uint64_t first = (own * run.calls + call) * kItems * team.size();
      for (unsigned i = 0; i < kItems; ++i)
        items[i] = make_item<kWords>(first + i * team.size() + team.rank());
      if (queue.push(team, items) != device::status::done) return;
    }
    return;
  }
  Count count;
  std::uint64_t last = 0;
  for (std::uint32_t call = 0; call < run.pop_calls; ++call) {
    if (queue.pop(team, items) != device::status::done) break;
    for (unsigned i = 0; i < kItems; ++i) {
      count.add(items[i]);
      if (run.in_order != 0 && id_of(items[i]) < last) count.wrong();
      last = id_of(items[i]);
    }
  }
  count.write(run.tally);
}

/// `calls` calls of `kItems` a thread, with ids from `base` on.
template <unsigned kWords, unsigned kItems, typename Pair, typename Members>
SIMT_DEVICE void push_pair(Pair& pair, const Members& group, std::uint64_t base,
                           std::uint32_t calls) {
  Item<kWords> items[kItems] = {};
  for (std::uint32_t call = 0; call < calls; ++call) {
    for (unsigned i = 0; i < kItems; ++i)
      items[i] = make_item<kWords>(base + (std::uint64_t{call} * kItems + i) * group.size() +
                                   group.rank());
    if (pair.push(group, items) != device::status::done) return;
  }
  pair.leave(group);
}
template <unsigned kWords, unsigned kItems, typename Pair, typename Members>
SIMT_DEVICE void pop_pair(Pair& pair, const Members& group, std::uint64_t base, std::uint32_t calls,
                          Tally* tally) {
  Item<kWords> items[kItems] = {};
  Count count;
  for (std::uint32_t call = 0; call < calls; ++call) {
    if (pair.pop(group, items) != device::status::done) break;
    for (unsigned i = 0; i < kItems; ++i) {
      count.add(items[i]);
      if (id_of(items[i]) !=
          base + (std::uint64_t{call} * kItems + i) * group.size() + group.rank())
        count.wrong();
    }
  }
  pair.leave(group);
  count.write(tally);
}

/// An item goes from the first side to the other and back, several times. `To` and `From`: queues,
/// or the sides of pairs. What came is looked at when the answer is on its way.
template <typename To, typename From>
SIMT_DEVICE void run_trips(To& to, From& from, bool begins, std::uint32_t rounds, Tally* tally) {
  const simt::this_thread alone{};
  Count count;
  Item<3> item = make_item<3>(0);
  if (begins && to.push(alone, item) != device::status::done) return;
  for (std::uint32_t round = 0; round < rounds; ++round) {
    const Item<3> next = make_item<3>(round + 1);
    if (from.pop(alone, item) != device::status::done) return;
    if (!begins || round + 1 < rounds)
      if (to.push(alone, begins ? next : item) != device::status::done) return;
    count.add(item);
    if (id_of(item) != round) count.wrong();
  }
  count.write(tally);
}
template <typename Scope>
SIMT_DEVICE void run_queue_trips(const device::queue_view& pushes, const device::queue_view& pops,
                                 bool begins, std::uint32_t rounds, Tally* tally) {
  const device::queue<Item<3>, Scope> to(pushes);
  const device::queue<Item<3>, Scope> from(pops);
  run_trips(to, from, begins, rounds, tally);
}
template <typename Scope>
SIMT_DEVICE void run_pair_trips(const device::spsc_view& pushes, const device::spsc_view& pops,
                                bool begins, std::uint32_t rounds, Tally* tally) {
  device::spsc_producer<Item<3>, Scope> to(pushes);
  device::spsc_consumer<Item<3>, Scope> from(pops);
  run_trips(to, from, begins, rounds, tally);
  to.leave(simt::this_thread{});
  from.leave(simt::this_thread{});
}

}  // namespace messaging_bench
