// Threads of one block that work together: one alone, a warp, the whole block; or some of its
// warps, so that one group can fill what another drains. All have
//
//   rank(), size(), is_leader()   of the calling thread; how many; the one with rank 0
//   sync()                        all threads of the group; orders memory between them
//   any(value), all(value)        sync(), and whether `value` was true for one, for each of them
#pragma once

#include "polypath/device/platform.cuh"

namespace polypath::device {

/// The calling thread alone.
struct this_thread {
  [[nodiscard]] POLYPATH_DEVICE unsigned rank() const { return 0; }
  [[nodiscard]] POLYPATH_DEVICE unsigned size() const { return 1; }
  [[nodiscard]] POLYPATH_DEVICE bool is_leader() const { return true; }
  POLYPATH_DEVICE void sync() const {}
  [[nodiscard]] POLYPATH_DEVICE bool any(bool value) const { return value; }
  [[nodiscard]] POLYPATH_DEVICE bool all(bool value) const { return value; }
};

/// The warp of the calling thread, which is whole.
struct this_warp {
  [[nodiscard]] POLYPATH_DEVICE unsigned rank() const { return rank_in_warp(); }
  [[nodiscard]] POLYPATH_DEVICE unsigned size() const { return kWarp; }
  [[nodiscard]] POLYPATH_DEVICE bool is_leader() const { return rank() == 0; }
  POLYPATH_DEVICE void sync() const { warp_sync(); }
  [[nodiscard]] POLYPATH_DEVICE bool any(bool value) const { return warp_any(value); }
  [[nodiscard]] POLYPATH_DEVICE bool all(bool value) const { return warp_all(value); }
};

/// All threads of the block, of one, two or three dimensions.
struct this_block {
  [[nodiscard]] POLYPATH_DEVICE unsigned rank() const { return rank_in_block(); }
  [[nodiscard]] POLYPATH_DEVICE unsigned size() const { return threads_of_block(); }
  [[nodiscard]] POLYPATH_DEVICE bool is_leader() const { return rank() == 0; }
  POLYPATH_DEVICE void sync() const { block_sync(); }
  [[nodiscard]] POLYPATH_DEVICE bool any(bool value) const { return barrier_any(0, size(), value); }
  [[nodiscard]] POLYPATH_DEVICE bool all(bool value) const { return !any(!value); }
};

/// Some warps of a block of one dimension.
class warp_group {
 public:
  /// `warps` warps from `first_warp` on; `barrier` (1 to 15) is theirs alone.
  POLYPATH_DEVICE warp_group(unsigned first_warp, unsigned warps, unsigned barrier)
      : first_(first_warp * kWarp), size_(warps * kWarp), barrier_(barrier) {}

  /// All threads of the block, with barrier 0.
  POLYPATH_DEVICE static warp_group block() { return warp_group(0, block_size() / kWarp, 0); }

  /// True when the calling thread belongs to it.
  [[nodiscard]] POLYPATH_DEVICE bool holds_me() const { return thread_index() - first_ < size_; }
  [[nodiscard]] POLYPATH_DEVICE unsigned rank() const { return thread_index() - first_; }
  [[nodiscard]] POLYPATH_DEVICE unsigned size() const { return size_; }
  [[nodiscard]] POLYPATH_DEVICE bool is_leader() const { return rank() == 0; }

  POLYPATH_DEVICE void sync() const { barrier_sync(barrier_, size_); }
  [[nodiscard]] POLYPATH_DEVICE bool any(bool value) const {
    return barrier_any(barrier_, size_, value);
  }
  [[nodiscard]] POLYPATH_DEVICE bool all(bool value) const { return !any(!value); }

 private:
  unsigned first_;
  unsigned size_;
  unsigned barrier_;
};

namespace detail {

/// What of a group acts together where not all of it does: its warps.
POLYPATH_DEVICE this_thread team_of(const this_thread& thread) { return thread; }
template <typename Group>
POLYPATH_DEVICE this_warp team_of(const Group&) {
  return this_warp{};
}

}  // namespace detail
}  // namespace polypath::device
