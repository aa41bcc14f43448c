// A batch of many sources, split into partitions: where it lies. C++17: shared by host and device.
#pragma once

#include <cstdint>

#include "polypath/device/detail/match_types.hpp"
#include "polypath/device/detail/mpi_tables.hpp"

namespace polypath::device {

/// What phases of the whole GPU tell each other; without preparation.
struct match_words {
  std::uint64_t bad;        ///< the first that must not be matched, or kNothingBad
  std::uint64_t seed;       ///< of hashes
  std::uint64_t given_out;  ///< places of messages, and in the upper half of receives
  std::uint32_t matches;
  std::uint32_t is_crowded;  ///< a partition has more than there is room for ahead
  std::uint32_t is_long;     ///< one has more than a block takes
  std::uint32_t noted;       ///< number of partitions for blocks
  std::uint32_t reserved[2];
};

/// Messages are side 0, receives side 1.
struct split_view {
  static constexpr unsigned kMaxBits = 16;
  /// The most of either side of a partition for a warp; and for a block, if it has eight warps or
  /// more.
  static constexpr std::uint32_t kMaxPerWarp = 128;
  static constexpr std::uint32_t kMaxPerBlock = 8 * kMaxPerWarp;
  /// Room of each side of a partition before its size is known.
  static constexpr std::uint32_t kRoom = kMaxPerWarp;

  match_batch batch;
  match_words* words;
  std::uint32_t* split[2];   ///< indices, partition by partition, each in any order
  std::uint32_t* counts[2];  ///< of each partition
  std::uint32_t* ends[2];    ///< where a partition lies, if the batch is crowded
  std::uint32_t* noted;      ///< partitions that are for blocks
  std::uint32_t bits;        ///< 2^bits partitions: 1 to kMaxBits

  /// The pointer for messages or for receives; so that what a thread is given stays in registers.
  template <typename T>
  [[nodiscard]] static POLYPATH_HOST_DEVICE T of_side(T const (&both)[2], unsigned side) {
    return side == 0 ? both[0] : both[1];
  }
  [[nodiscard]] POLYPATH_HOST_DEVICE std::uint32_t count(unsigned side) const {
    return side == 0 ? batch.message_count : batch.receive_count;
  }
  [[nodiscard]] POLYPATH_HOST_DEVICE const envelope* from(unsigned side) const {
    return side == 0 ? batch.messages : batch.receives;
  }
  [[nodiscard]] POLYPATH_HOST_DEVICE std::uint32_t partitions() const { return 1U << bits; }
  [[nodiscard]] static POLYPATH_HOST_DEVICE constexpr std::uint32_t max_of_block(
      std::uint32_t warps) {
    return warps >= 8   ? kMaxPerBlock
           : warps >= 4 ? 4 * kMaxPerWarp
           : warps >= 2 ? 2 * kMaxPerWarp
                        : kMaxPerWarp;
  }

  /// In which of 2^bits partitions an envelope lies: all that one source sends by one communicator
  /// lies in one.
  [[nodiscard]] static POLYPATH_HOST_DEVICE constexpr std::uint32_t partition_of(
      const envelope& header, std::uint32_t bits) {
    constexpr std::uint32_t kOdd = 0x9E37;
    return (header.source ^ header.communicator * kOdd) & ((1U << bits) - 1);
  }
  /// Partitions of some 32 to 64 of each, were sources spread evenly.
  [[nodiscard]] static POLYPATH_HOST_DEVICE constexpr std::uint32_t bits_for(
      std::uint32_t messages, std::uint32_t receives) {
    const std::uint32_t log2 = detail::log2_above(messages > receives ? messages : receives);
    return log2 < 6 ? 1 : log2 - 5 > kMaxBits ? kMaxBits : log2 - 5;
  }
};

/// The memory of matching without a source wildcard by the whole GPU.
struct partitioned_workspace {
  /// Where sources have many, what is allowed here is matched as MPI's order says, by its phases,
  /// which come after those of the split.
  static constexpr unsigned kOfSplit = 5;
  static constexpr unsigned kPhases = kOfSplit + mpi_workspace::kPhases;
  static constexpr std::uint32_t kMaxCapacity = 1U << 20;
  [[nodiscard]] static POLYPATH_HOST_DEVICE constexpr bool runs_in_one_warp(unsigned phase) {
    return phase >= kOfSplit && mpi_workspace::runs_in_one_warp(phase - kOfSplit);
  }
  [[nodiscard]] static POLYPATH_HOST_DEVICE std::uint64_t bytes(std::uint32_t capacity) {
    return of_mpi(capacity) + mpi_workspace::bytes(capacity);
  }
  /// Offset of the memory of the phases of MPI order.
  [[nodiscard]] static POLYPATH_HOST_DEVICE constexpr std::uint64_t of_mpi(std::uint32_t capacity) {
    return split_bytes(capacity, split_view::bits_for(capacity, capacity));
  }
  /// Bytes for a batch in 2^bits partitions, or fewer.
  [[nodiscard]] static POLYPATH_HOST_DEVICE constexpr std::uint64_t split_bytes(
      std::uint32_t capacity, std::uint32_t bits) {
    const std::uint64_t words = 2 * (places(capacity, bits) + 2 * (std::uint64_t{1} << bits)) +
                                2 * std::uint64_t{capacity} / split_view::kMaxPerWarp + 1;
    return sizeof(match_words) + (words + 3) / 4 * 16;
  }
  [[nodiscard]] static POLYPATH_HOST_DEVICE split_view cut(unsigned char* at,
                                                           std::uint32_t capacity,
                                                           const match_batch& batch,
                                                           std::uint32_t bits) {
    split_view view{};
    view.batch = batch;
    view.bits = bits;
    view.words = reinterpret_cast<match_words*>(at);
    auto* next = reinterpret_cast<std::uint32_t*>(view.words + 1);
    const auto take = [&next](std::uint64_t words) {
      std::uint32_t* const taken = next;
      next += words;
      return taken;
    };
    for (unsigned side = 0; side < 2; ++side) {
      view.split[side] = take(places(capacity, bits));
      view.counts[side] = take(view.partitions());
      view.ends[side] = take(view.partitions());
    }
    view.noted = next;
    return view;
  }

 private:
  /// Places of a side: a room for each partition; or, if the batch is crowded, one for each
  /// element.
  static POLYPATH_HOST_DEVICE constexpr std::uint64_t places(std::uint32_t capacity,
                                                             std::uint32_t bits) {
    const std::uint64_t rooms = std::uint64_t{split_view::kRoom} << bits;
    return rooms < capacity ? capacity : rooms;
  }
};

/// Sums of a warp or block, in its shared memory: words of each warp. Needs no preparation.
struct match_sums {
  std::uint32_t words[32];
  std::uint32_t least[32];
};

}  // namespace polypath::device
