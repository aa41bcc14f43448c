// Where a pool lies. C++17: shared by host and device; the host makes it, a kernel has it by value.
#pragma once

#include <cstddef>
#include <cstdint>

#include "polypath/device/queue_view.hpp"

namespace polypath::device {

/// How often a shard of a pool was asked. Blocks, counted modulo 2^64.
struct alignas(32) pool_counts {
  std::uint64_t allocated;
  std::uint64_t freed;
  std::uint64_t failed;  ///< asked for, and none was free
  std::uint64_t
      refused;  ///< frees of what was no block, or not held; allocations that are too large
};

/// Blocks of 64 bytes to 4 KiB, in slabs of one size class each. All memory but the blocks begins
/// as zeros.
///
/// A handle is 32 bits: the size class, 3 bits, and where the block begins, in units of 64 bytes.
struct pool_view {
  static constexpr unsigned kMinLog2 = 6;  ///< of a block's bytes
  static constexpr unsigned kClasses = 7;  ///< class c has blocks of 64 << c bytes
  static constexpr std::uint32_t kLargest = 1U << (kMinLog2 + kClasses - 1);
  static constexpr std::uint32_t kNoBlock = 0xFFFFFFFF;
  static constexpr unsigned kClassShift = 29;  ///< of a handle
  static constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << (kClassShift + kMinLog2);
  // A slab's gate: how many blocks are held or promised, and the class from 1 on; 0: none yet.
  static constexpr unsigned kGateShift = 24;
  static constexpr std::uint32_t kGateCount = (1U << kGateShift) - 1;
  static constexpr unsigned kHints = 8;  ///< of a shard, one a class
  static constexpr unsigned kMinSlabLog2 = 13;
  static constexpr unsigned kMaxSlabLog2 = 22;

  unsigned char* blocks;  ///< slabs << slab_log2 bytes, aligned to 4096
  std::uint32_t* gates;   ///< of each slab
  std::uint32_t* bits;    ///< of each slab (kBitsLog2): 1 for a block that is held
  std::uint32_t* hints;   ///< of each shard and class: the slab to look in first, counted from 1
  pool_counts* counts;    ///< of each shard
  std::uint32_t slabs;
  std::uint32_t slab_log2;    ///< bytes of a slab
  std::uint32_t shards_log2;  ///< warps that share hints and counts

  /// A slab has 1 << (slab_log2 - kBitsLog2) words of bits, for as many blocks as it can have.
  static constexpr unsigned kBitsLog2 = kMinLog2 + 5;
};

/// What lies where in memory for a pool: bytes from its begin, which is aligned to 4096.
struct pool_layout {
  std::uint64_t blocks, gates, bits, hints, counts;
  std::uint64_t zeros;  ///< from here to the end, what begins as zeros
  std::uint64_t bytes;  ///< of all
  std::uint32_t slabs, slab_log2, shards_log2;

  [[nodiscard]] pool_view view_at(unsigned char* begin) const {
    return {begin + blocks,
            reinterpret_cast<std::uint32_t*>(begin + gates),
            reinterpret_cast<std::uint32_t*>(begin + bits),
            reinterpret_cast<std::uint32_t*>(begin + hints),
            reinterpret_cast<pool_counts*>(begin + counts),
            slabs,
            slab_log2,
            shards_log2};
  }
};

/// For `slabs` (not 0) slabs of 1 << slab_log2 bytes.
constexpr pool_layout layout_of_pool(std::uint32_t slabs, std::uint32_t slab_log2) {
  constexpr std::uint64_t kLine = 128;
  constexpr std::uint32_t kMaxShardsLog2 = 8;
  pool_layout layout{};
  layout.slabs = slabs;
  layout.slab_log2 = slab_log2;
  // A shard has a slab of each class under way, so there are more slabs than that.
  while (layout.shards_log2 < kMaxShardsLog2 && slabs >> (layout.shards_log2 + 5) != 0)
    ++layout.shards_log2;
  const std::uint64_t shards = std::uint64_t{1} << layout.shards_log2;
  const auto lines = [](std::uint64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; };
  layout.gates = std::uint64_t{slabs} << slab_log2;
  layout.zeros = layout.gates;
  layout.bits = layout.gates + lines(std::uint64_t{slabs} * sizeof(std::uint32_t));
  layout.hints = layout.bits + lines((std::uint64_t{slabs} << (slab_log2 - pool_view::kBitsLog2)) *
                                     sizeof(std::uint32_t));
  layout.counts = layout.hints + lines(shards * pool_view::kHints * sizeof(std::uint32_t));
  layout.bytes = layout.counts + lines(shards * sizeof(pool_counts));
  return layout;
}

/// A pool of each rank, in symmetric memory, and the queues by which blocks come back.
struct shared_pool_view {
  static constexpr int kMaxRanks = 8;

  pool_view own;
  std::int32_t rank;
  std::int32_t ranks;
  unsigned char* blocks[kMaxRanks];  ///< of each rank's pool, as this rank's GPU has them
  // In memory of this rank's GPU, one for each rank, of items of 4 bytes (system_scope):
  const queue_view* to_owner;     ///< this rank pushes
  const queue_view* from_holder;  ///< this rank pops
};

}  // namespace polypath::device
