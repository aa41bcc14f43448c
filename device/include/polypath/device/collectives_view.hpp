// Where ranks meet whose kernels make collectives together. C++17: shared by host and device; the
// host makes it, a kernel has it by value.
#pragma once

#include <cstddef>
#include <cstdint>

#include "polypath/device/wait_context.hpp"

namespace polypath::device {

/// Addresses are as this rank's GPU has them.
struct collectives_view {
  static constexpr int kMaxRanks = 8;
  /// Bytes of `meeting` of each rank.
  static constexpr std::size_t kMeetingBytes = kMaxRanks * sizeof(std::uint64_t);
  /// Bytes of `grid`: two words, apart.
  static constexpr std::size_t kGridBytes = 256;

  std::int32_t rank;
  std::int32_t ranks;
  /// By rank, in symmetric memory, zeros at first: words that the rank of their index raises.
  std::uint64_t* meeting[kMaxRanks];
  /// In this GPU's memory, zeros at first: where the blocks of a grid meet. Not for kernels that
  /// run side by side.
  std::uint32_t* grid;
  wait_context wait_ctx;
};

/// Memory that all ranks have: `at[r]` is that of rank r, as this rank's GPU has it.
template <typename T>
struct symmetric {
  T* at[collectives_view::kMaxRanks];

  /// From element `first` on.
  [[nodiscard]] constexpr symmetric behind(std::size_t first) const {
    symmetric moved = *this;
    for (int rank = 0; rank < collectives_view::kMaxRanks; ++rank) moved.at[rank] += first;
    return moved;
  }
};

}  // namespace polypath::device
