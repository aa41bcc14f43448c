// The fixture of tests of the emulated mesh: two GPUs that an NVLink joins. Skips where there are
// none, and in a build without kernels.
#pragma once

#include "base/units.hpp"
#include "exec/emulated_mesh/emulated_links.hpp"
#include "support/engine_test.hpp"

namespace polypath::test {

inline constexpr std::uint64_t kLarge = 64 * kMiB;

/// A copy between the memories of two GPUs, and the GPU whose stream carries it.
struct Place {
  int from = 0;
  int to = 0;
  int gpu = 0;
};

class MeshTest : public EngineTest {
 protected:
  void SetUp() override;

  /// The copy over an emulated link, which there must be.
  LaneCopy link_copy(CUdeviceptr dst, CUdeviceptr src, std::uint64_t bytes, const Place& place) {
    return links_->link_copy(dst, src, bytes, place.from, place.to, place.gpu).value();
  }
  /// Issues a copy over an emulated link on a stream of the place's GPU.
  void launch(CUdeviceptr dst, CUdeviceptr src, std::uint64_t bytes, const Place& place,
              CUstream stream);
  void launch(const Payload& payload, const Place& place, CUstream stream);
  /// Gives every link that many lanes.
  void set_lanes(int lanes);
  /// Pushed by the source; pulled by the destination.
  [[nodiscard]] Place pushed() const { return {from_.index, to_.index, from_.index}; }
  [[nodiscard]] Place pulled() const { return {from_.index, to_.index, to_.index}; }
  [[nodiscard]] Place back() const { return {to_.index, from_.index, to_.index}; }
  /// What one lane of the link carries, GB/s.
  double one_lane_gbps();

  MemoryId from_;  ///< the ends of one link
  MemoryId to_;
  std::unique_ptr<EmulatedLinks> links_;  ///< of one lane each
};

}  // namespace polypath::test
