// What the kernels of queue_kernels.cu are told, on the host and on the device.
#pragma once

#include <cstdint>

#include "polypath/device/queue_view.hpp"
#include "polypath/device/spsc_view.hpp"

namespace polypath::test {

enum class Members : std::uint32_t { thread, warp, block };
enum class Calls : std::uint32_t {
  waiting,
  trying,     ///< try_push, try_pop
  publishing  ///< push_release, pop_acquire, of what was stored elsewhere before
};

/// What a consumer found; `is_right` of the words after the first two.
struct PoppedItem {
  std::uint32_t team;
  std::uint32_t number;
  std::uint32_t is_right;
  std::uint32_t result;
};

/// All teams of a launch push, or all pop until the queue is closed. A team is what takes a turn by
/// itself: a thread, or a warp.
struct QueueRow {
  device::queue_view view;
  Members members;
  Calls calls;
  std::uint32_t words;       ///< of an item: 2, 3, 5, 10, or 24
  std::uint32_t items;       ///< of each thread in one call: 1 or 2
  std::uint32_t pushes;      ///< calls of each producing thread
  std::uint32_t* elsewhere;  ///< of `publishing`: a word for each item of
  std::uint32_t pushers;     ///< number of teams that push
  PoppedItem* popped;        ///< `room` for each team that pops, in its order
  std::uint32_t room;
  std::uint32_t pause_us = 0;  ///< before each call; up to 4 seconds
};

/// Both launches have one block; each of its teams has a pair of its own.
struct PairRow {
  device::spsc_view view;    ///< of the first; the others' follow it
  std::uint32_t cell_bytes;  ///< of a pair
  Members members;
  std::uint32_t words;
  std::uint32_t items;
  std::uint32_t calls;
  std::uint32_t first;  ///< number of the first item
  PoppedItem* popped;   ///< `room` for each team
  std::uint32_t room;
};

}  // namespace polypath::test
