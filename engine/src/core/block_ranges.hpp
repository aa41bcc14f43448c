// What the addresses of a batch are: the driver is asked once for each allocation that they lie in,
// not for each address. For one call on one thread: memory may be another at the next call.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "core/classifier.hpp"
#include "core/counters.hpp"
#include "driver/context_guard.hpp"

namespace polypath {

/// One allocation, or one mapping of a reservation.
struct BlockRange {
  CUdeviceptr begin = 0;
  CUdeviceptr end = 0;
  PointerInfo info;
  MemoryId memory;
  /// Why copies of it go natively; nothing for memory that kernels may use.
  std::optional<NativeReason> reason;
  Access access;
  std::uint64_t groups = 0;  ///< bits of those that have a copy with an end here
  /// By GPU: where its kernels reach the range, as a distance; nothing: not at all.
  std::vector<std::optional<std::optional<std::uint64_t>>> distances;
};

class BlockRanges {
 public:
  /// All must outlive it.
  BlockRanges(const NodeSource& source, Classifier& classifier, Devices& devices,
              ImportedMemories& imports);

  /// The range that holds `address`. Throws InvalidArgument for what is no memory, and for a copy
  /// that passes the end of its allocation into nothing; `argument` is its name. `last`: the range
  /// that was found last for such an argument, or none(); set to this one.
  BlockRange& find(const char* argument, CUdeviceptr address, std::uint64_t bytes,
                   BlockRange*& last) {
    if (address < last->begin || address >= last->end) last = &look_up(argument, address, bytes);
    return *last;
  }
  /// A range that holds nothing.
  [[nodiscard]] BlockRange* none() noexcept { return &none_; }

  /// Where kernels of `gpu`, whose primary context is `context`, find what the program has in the
  /// range: that much further up. Nothing where they may not. `reaches_peer`: whether peer access
  /// to the GPU that holds plain memory is enabled.
  std::optional<std::uint64_t> distance(BlockRange& range, int gpu, CUcontext context,
                                        bool reaches_peer, ContextGuard& guard);

  [[nodiscard]] std::deque<BlockRange>& all() noexcept { return ranges_; }

 private:
  BlockRange& look_up(const char* argument, CUdeviceptr address, std::uint64_t bytes);
  BlockRange make(const char* argument, CUdeviceptr address, std::uint64_t bytes);
  std::optional<std::uint64_t> ask_distance(const BlockRange& range, int gpu, CUcontext context,
                                            bool reaches_peer, ContextGuard& guard) const;
  [[nodiscard]] const CudaDriver& driver() const noexcept { return *source_.driver; }

  const NodeSource& source_;
  Classifier& classifier_;
  Devices& devices_;
  ImportedMemories& imports_;
  std::deque<BlockRange> ranges_;
  std::vector<std::pair<CUdeviceptr, BlockRange*>> by_begin_;  // sorted; without pageable memory
  BlockRange none_;
  BlockRange pageable_;
};

}  // namespace polypath
