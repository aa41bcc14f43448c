// The tables that kernels of all GPUs read: one piece of pinned host memory, used as a ring.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>

#include "exec/event_pool.hpp"
#include "exec/kernels/copy_blocks_args.h"

namespace polypath {

/// Thread-safe; its lock is held over event queries, which never wait. Memory that kernels may
/// still read is not freed by the destructor.
class BlockTable {
 public:
  /// Entries of the ring, and of one table at most.
  static constexpr std::size_t kEntries = std::size_t{1} << 18;
  static constexpr std::size_t kMaxEntries = kEntries / 2;

  BlockTable(std::shared_ptr<const CudaDriver> driver, Devices& devices)
      : driver_(std::move(driver)), devices_(devices) {}
  ~BlockTable();
  BlockTable(const BlockTable&) = delete;
  BlockTable& operator=(const BlockTable&) = delete;

  /// Makes the memory, by `gpu`'s context; later calls do nothing. Slow. Throws DriverError.
  void make(int gpu);

  /// A part of the ring, until it is released.
  struct Range {
    CopyBlock* entries = nullptr;  ///< host and GPUs have one address for it
    std::size_t id = 0;
  };
  /// Room for `count` entries; nothing where tables in use take it, or nothing was made.
  std::optional<Range> reserve(std::size_t count);
  /// The range is free again once `end` has completed; null: at once. A range that is not released
  /// stays in use: kernels may read it to the end of the process.
  void release(const Range& range, std::shared_ptr<PooledEvent> end) noexcept;

 private:
  struct Use {
    std::size_t id;
    std::size_t begin;
    std::size_t end;
    bool is_filled = false;                   ///< released
    std::shared_ptr<PooledEvent> event = {};  ///< null: free when it is filled
  };
  void prune();  // with mutex_ held

  std::shared_ptr<const CudaDriver> driver_;
  Devices& devices_;
  PinnedBudget::Share share_;
  std::mutex making_;  // held while the memory is made
  std::mutex mutex_;
  CopyBlock* entries_ = nullptr;
  int gpu_ = -1;          // whose context registered it
  std::deque<Use> uses_;  // oldest first
  std::size_t next_id_ = 0;
};

}  // namespace polypath
