// What the kernel of himeno.cuh is told, and the arithmetic that the host shares with it, bit by
// bit (no fused multiply-add on either side). C++17.
#pragma once

#include <cstddef>
#include <cstdint>

#include "polypath/device/channel_view.hpp"

namespace messaging_example {

/// Planes of one rank: its own, with a halo before and one after them. A plane has `rows` rows of
/// `width` cells.
struct HimenoRun {
  polypath::device::channel_view view;
  float* pressure[2];  ///< of every other iteration; halos and edges of both are set
  std::uint32_t planes;
  std::uint32_t rows;
  std::uint32_t width;
  std::uint32_t iterations;
  float* row_sums;      ///< of the residual in the last one: planes x rows
  std::uint64_t* gate;  ///< two words, zeros: where the blocks of this GPU meet
  std::uint32_t* failed;
};

inline constexpr std::uint32_t kHimenoThreads = 256;
inline constexpr std::uint32_t kLanes = 32;  ///< of a row's sum

/// The 19 points: itself, its 6 neighbours, and the 12 that share an edge with it.
template <typename At>
POLYPATH_HOST_DEVICE float himeno_change(const At& at) {
  constexpr float kSide = 1.0F;
  constexpr float kEdge = 1.0F / 64.0F;
  constexpr float kScale = 1.0F / 6.0F;
  constexpr float kOmega = 0.8F;
  float sum = kSide * at(1, 0, 0);
  sum = sum + kSide * at(0, 1, 0);
  sum = sum + kSide * at(0, 0, 1);
  sum = sum + kEdge * (at(1, 1, 0) - at(1, -1, 0) - at(-1, 1, 0) + at(-1, -1, 0));
  sum = sum + kEdge * (at(0, 1, 1) - at(0, -1, 1) - at(0, 1, -1) + at(0, -1, -1));
  sum = sum + kEdge * (at(1, 0, 1) - at(-1, 0, 1) - at(1, 0, -1) + at(-1, 0, -1));
  sum = sum + kSide * at(-1, 0, 0);
  sum = sum + kSide * at(0, -1, 0);
  sum = sum + kSide * at(0, 0, -1);
  return kOmega * (sum * kScale - at(0, 0, 0));
}

}  // namespace messaging_example
