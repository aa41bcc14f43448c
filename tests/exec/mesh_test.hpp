// The fixture of tests of the emulated mesh: two GPUs that an NVLink joins. Skips where there are none, and
// in a build without kernels.
#pragma once

#include "base/units.hpp"
#include "exec/emulated_mesh.hpp"
#include "support/engine_test.hpp"

namespace polypath::test {

class MeshTest : public EngineTest {
 protected:
  void SetUp() override;

  /// Issues a copy over an emulated link on a stream of the place's GPU.
  void launch(CUdeviceptr dst, CUdeviceptr src, std::uint64_t bytes, const CopyPlace& place,
              CUstream stream);
  void launch(const Payload& payload, const CopyPlace& place, CUstream stream);
  /// Gives every link that many lanes.
  void set_lanes(int lanes);
  /// Pushed by the source; pulled by the destination.
  [[nodiscard]] CopyPlace pushed() const { return {from_, to_, from_.index}; }
  [[nodiscard]] CopyPlace pulled() const { return {from_, to_, to_.index}; }
  [[nodiscard]] CopyPlace back() const { return {to_, from_, to_.index}; }
  /// What one lane of the link carries, GB/s.
  double one_lane_gbps();

  MemoryId from_;  ///< the ends of one link
  MemoryId to_;
  std::unique_ptr<Devices> devices_;
  std::unique_ptr<EmulatedMesh> mesh_;  ///< one lane a link
};

}  // namespace polypath::test
