// How all blocks of a launch wait for each other, where they run at once (a cooperative launch),
// and how they share out numbers.
#pragma once

#include <cstdint>

#include "polypath/device/detail/mutants.hpp"
#include "polypath/device/detail/table_memory.cuh"
#include "polypath/device/platform.cuh"
#include "polypath/device/scope.cuh"

namespace polypath::device {

namespace detail {

/// `word` is 0 before the first launch, and of one launch at a time. At a meeting the blocks of a
/// launch, however many, add up to 2^31: its highest bit turns, and the others are 0 again, so that
/// nothing must be reset for the next meeting or launch.
class grid_barrier {
 public:
  POLYPATH_DEVICE explicit grid_barrier(std::uint32_t* word) : word_(word) {}

  /// By all threads of all blocks; each sees what all stored before.
  POLYPATH_DEVICE void meet() const {
    block_sync();
    POLYPATH_MUTANT(grid_mutant::does_not_wait, return block_sync())
    if (thread_index() == 0) {
      const std::uint32_t before = arrive();
      spin_until([&] { return is_over(before); }, [] { return false; });
    }
    block_sync();
  }
  /// In the place of the last meeting: true for the block that comes last, which sees what all
  /// stored. No block waits.
  [[nodiscard]] POLYPATH_DEVICE bool is_last() const {
    bool last = false;
    block_sync();
    if (thread_index() == 0) {
      const std::uint32_t before = arrive();
      last = ((before + part()) ^ before) >> 31 != 0 && is_over(before);
      POLYPATH_MUTANT(grid_mutant::ends_before_the_others, last = block_index() == 0)
    }
    return block_any(last);
  }

 private:
  [[nodiscard]] POLYPATH_DEVICE bool is_over(std::uint32_t before) const {
    std::uint32_t now;
    POLYPATH_MUTANT_ELSE(grid_mutant::no_acquire, now = load_relaxed<device_scope>(word_))
    now = load_acquire<device_scope>(word_);
    return (now ^ before) >> 31 != 0;
  }
  [[nodiscard]] POLYPATH_DEVICE static std::uint32_t part() {
    POLYPATH_MUTANT(grid_mutant::first_block_is_as_others, return 1)
    return block_index() == 0 ? (1U << 31) - (grid_size() - 1) : 1;
  }
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t arrive() const {
    POLYPATH_MUTANT(grid_mutant::no_release, return device::fetch_add<device_scope>(word_, part()))
    return fetch_add_release<device_scope>(word_, part());
  }

  std::uint32_t* word_;
};

/// By all threads of a block: raises `*total` by the sum of their values, and returns where the
/// part of this thread begins. Both are pairs of 32 bits, in one word. `words`: two for each warp
/// of the block, in shared memory.
POLYPATH_DEVICE std::uint64_t share_out(std::uint32_t* words, std::uint64_t* total,
                                        std::uint64_t own) {
  const unsigned warp = warp_index();
  const unsigned lane = rank_in_warp();
  const std::uint64_t up_to_me = sum_up_to_me(own);
  const auto put = [&](unsigned at, std::uint64_t value) {
    words[2 * at] = static_cast<std::uint32_t>(value);
    words[2 * at + 1] = static_cast<std::uint32_t>(value >> 32);
  };
  const auto get = [&](unsigned at) {
    return words[2 * at] | std::uint64_t{words[2 * at + 1]} << 32;
  };
  if (lane == kWarp - 1) put(warp, up_to_me);
  block_sync();
  if (warp == 0) {
    const bool has_one = lane < block_size() / kWarp;
    const std::uint64_t of_warp = has_one ? get(lane) : 0;
    const std::uint64_t up_to_it = sum_up_to_me(of_warp);
    std::uint64_t first = 0;
    if (lane == kWarp - 1 && up_to_it != 0)
      first = device::fetch_add<device_scope>(total, up_to_it);
    first = warp_shuffle(first, kWarp - 1);
    if (has_one) put(lane, first + up_to_it - of_warp);
  }
  block_sync();
  const std::uint64_t begin = get(warp) + up_to_me - own;
  block_sync();  // the words may be used anew
  return begin;
}

}  // namespace detail
}  // namespace polypath::device
