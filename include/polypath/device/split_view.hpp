// A batch of many sources, split into partitions: where it lies. C++17: shared by host and device.
#pragma once

#include <cstdint>

#include "polypath/device/matcher_tables.hpp"
#include "polypath/device/matcher_view.hpp"

namespace polypath::device {

/// A message or receive, and its index in the batch.
struct alignas(16) numbered {
  envelope what;
  std::uint32_t number;
  std::uint32_t reserved;
};

/// What phases of the whole GPU tell each other; without preparation.
struct match_words {
  std::uint64_t bad;   ///< the first that must not be matched, or kNothingBad
  std::uint64_t seed;  ///< of hashes
  std::uint32_t matches;
  std::uint32_t is_long;   ///< a partition is too long for a warp
  std::uint32_t arrivals;  ///< of blocks that wait for each other
  std::uint32_t reserved;
};

/// Messages are side 0, receives side 1.
struct split_view {
  static constexpr unsigned kDigitBits = 8;
  static constexpr unsigned kDigits = 1U << kDigitBits;
  static constexpr unsigned kOfThread = 8;  ///< elements of a piece, which a block takes
  static constexpr unsigned kMostBits = 2 * kDigitBits;

  match_batch batch;
  match_words* words;
  numbered* half_way[2];     ///< behind the first pass of two
  numbered* split[2];        ///< partition by partition
  std::uint32_t* pieces[2];  ///< kDigits for each piece, and kDigits
  std::uint32_t* begins[2];  ///< of each partition, and where the last one ends
  std::uint32_t bits;        ///< 2^bits partitions: 1 to kMostBits

  /// Of messages or of receives; so that what a thread is given stays in registers.
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
  [[nodiscard]] POLYPATH_HOST_DEVICE unsigned passes() const { return bits > kDigitBits ? 2 : 1; }

  /// Pieces of so many elements, for blocks of `threads`.
  [[nodiscard]] static POLYPATH_HOST_DEVICE constexpr std::uint32_t pieces_of(std::uint32_t count,
                                                                              unsigned threads) {
    return (count + threads * kOfThread - 1) / (threads * kOfThread);
  }
  /// In which of 2^bits partitions an envelope lies: all that one source sends by one communicator
  /// lies in one.
  [[nodiscard]] static POLYPATH_HOST_DEVICE constexpr std::uint32_t partition_of(
      const envelope& of, std::uint32_t bits) {
    constexpr std::uint32_t kOdd = 0x9E37;
    return (of.source ^ of.communicator * kOdd) & ((1U << bits) - 1);
  }
  /// Partitions of some 32 to 64 of each, were sources spread evenly.
  [[nodiscard]] static POLYPATH_HOST_DEVICE constexpr std::uint32_t bits_for(
      std::uint32_t messages, std::uint32_t receives) {
    const std::uint32_t log2 = detail::log2_above(messages > receives ? messages : receives);
    return log2 < 6 ? 1 : log2 - 5 > kMostBits ? kMostBits : log2 - 5;
  }
};

/// The memory of matching without a source wildcard by the whole GPU.
struct partitioned_workspace {
  /// Where sources have many, what is allowed here is matched as MPI's order says, by its phases,
  /// which come behind those of the split.
  static constexpr unsigned kOfSplit = 9;
  static constexpr unsigned kPhases = kOfSplit + mpi_workspace::kPhases;
  [[nodiscard]] static POLYPATH_HOST_DEVICE constexpr bool runs_in_one_warp(unsigned phase) {
    return phase == 0 || (phase >= kOfSplit && mpi_workspace::runs_in_one_warp(phase - kOfSplit));
  }
  [[nodiscard]] static POLYPATH_HOST_DEVICE std::uint64_t bytes(std::uint32_t capacity) {
    return of_mpi(capacity) + mpi_workspace::bytes(capacity);
  }
  /// Where the memory of MPI's phases begins.
  [[nodiscard]] static POLYPATH_HOST_DEVICE constexpr std::uint64_t of_mpi(std::uint32_t capacity) {
    return sizeof(match_words) + 2 * side_bytes(capacity);
  }
  [[nodiscard]] static POLYPATH_HOST_DEVICE split_view cut(unsigned char* at,
                                                           std::uint32_t capacity,
                                                           const match_batch& batch,
                                                           std::uint32_t bits) {
    split_view view{};
    view.batch = batch;
    view.bits = bits;
    view.words = reinterpret_cast<match_words*>(at);
    at += sizeof(match_words);
    for (unsigned side = 0; side < 2; ++side, at += side_bytes(capacity)) {
      view.half_way[side] = reinterpret_cast<numbered*>(at);
      view.split[side] = view.half_way[side] + capacity;
      view.pieces[side] = reinterpret_cast<std::uint32_t*>(view.split[side] + capacity);
      view.begins[side] = view.pieces[side] + piece_words(capacity);
    }
    return view;
  }

 private:
  static POLYPATH_HOST_DEVICE constexpr std::uint64_t piece_words(std::uint32_t capacity) {
    return std::uint64_t{split_view::kDigits} * (split_view::pieces_of(capacity, 32) + 1);
  }
  static POLYPATH_HOST_DEVICE constexpr std::uint64_t side_bytes(std::uint32_t capacity) {
    const std::uint64_t words = piece_words(capacity) + (1U << split_view::kMostBits) + 4;
    return 2 * sizeof(numbered) * std::uint64_t{capacity} + words * sizeof(std::uint32_t);
  }
};

/// Of a warp or block, in its shared memory: words of each warp. Needs no preparation.
struct match_sums {
  std::uint32_t words[32];
  std::uint32_t least[32];
};

}  // namespace polypath::device
