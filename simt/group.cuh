// Threads of one block that work together: the whole block, or some of its warps, so that one group
// can fill what another drains.
#pragma once

#include "simt/platform.cuh"

namespace polypath::simt {

class Group {
 public:
  /// `warps` warps from `first_warp` on; `barrier` (1 to 15) is theirs alone.
  SIMT_DEVICE Group(unsigned first_warp, unsigned warps, unsigned barrier)
      : first_(first_warp * kWarp), size_(warps * kWarp), barrier_(barrier) {}

  /// All threads of the block, with barrier 0.
  SIMT_DEVICE static Group block() { return Group(0, block_size() / kWarp, 0); }

  /// True when the calling thread belongs to it.
  [[nodiscard]] SIMT_DEVICE bool holds_me() const { return thread_index() - first_ < size_; }
  [[nodiscard]] SIMT_DEVICE unsigned rank() const { return thread_index() - first_; }
  [[nodiscard]] SIMT_DEVICE unsigned size() const { return size_; }
  [[nodiscard]] SIMT_DEVICE bool is_leader() const { return rank() == 0; }

  /// All threads of the group; orders memory between them.
  SIMT_DEVICE void sync() const { barrier_sync(barrier_, size_); }
  /// sync(), and true for all when `value` was true for one of them.
  [[nodiscard]] SIMT_DEVICE bool any(bool value) const {
    return barrier_any(barrier_, size_, value);
  }

 private:
  unsigned first_;
  unsigned size_;
  unsigned barrier_;
};

}  // namespace polypath::simt
