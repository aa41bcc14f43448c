// What the kernels of queue_bench.cu are told, on the host and on the device.
#pragma once

#include <cstdint>

#include "polypath/device/queue_view.hpp"
#include "polypath/device/spsc_view.hpp"

namespace messaging_bench {

/// What consumers found, added up over all.
struct Tally {
  std::uint64_t items;
  std::uint64_t sum_of_ids;
  std::uint64_t wrong;  ///< contents that do not belong to the id, or out of order
};

/// One launch: the first `producers` blocks push, the others pop. Each team (a warp, or a thread)
/// makes `calls` calls.
struct QueueRun {
  polypath::device::queue_view view;
  std::uint32_t producers;
  std::uint32_t calls;      ///< of a producing team
  std::uint32_t pop_calls;  ///< of a consuming one
  std::uint32_t in_order;   ///< whether there is one producing team, whose order is looked at
  Tally* tally;
};

/// Block 2 i pushes to pair i, block 2 i + 1 pops from it. With `by_warp` each of their warps has a
/// pair of its own.
struct PairRun {
  polypath::device::spsc_view view;  ///< of the first; the others' lie after it
  std::uint64_t cell_bytes;          ///< of a pair
  std::uint32_t by_warp;
  std::uint32_t calls;
  Tally* tally;
};

/// When a call began and ended, by the GPU's clock, ns; of a push or of a pop.
struct Operation {
  std::uint64_t id;
  std::uint64_t began;
  std::uint64_t ended;
};

/// As QueueRun, by single threads, each of which pauses between its calls; and what each did:
/// `calls` places for each producing thread, then `pop_calls` for each consuming one.
struct HistoryRun {
  QueueRun queue;
  Operation* operations;
};

/// Block 0 sends an item to block 1, which sends it back, so often.
struct RoundTrips {
  polypath::device::queue_view queues[2];
  polypath::device::spsc_view pairs[2];
  std::uint32_t rounds;
  Tally* tally;
};

}  // namespace messaging_bench
