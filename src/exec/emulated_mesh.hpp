// Carries copies between GPUs by a kernel (kernels/copy_lane.cu) with as many thread blocks as give the rate
// of an emulated link, one copy after another on each of the link's lanes (docs/emulated-mesh.md).
//
//   constructor  contexts, peer access, the kernel, the lanes' words      slow
//   set_lanes    how many lanes each link has: tune/calibrate_mesh        before the first copy
//   lane_copy    the copy, to be launched or put into a graph             any thread, no driver call
#pragma once

#include <optional>

#include "exec/lane_copy.hpp"
#include "exec/lane_kernel.hpp"
#include "topology/node.hpp"

namespace polypath {

/// A copy between memories, and the GPU whose stream carries it.
struct CopyPlace {
  MemoryId from;
  MemoryId to;
  int gpu = 0;
};

class EmulatedMesh {
 public:
  static constexpr int kMostLanes = 64;  ///< a link

  /// One directed link between two GPUs.
  struct Path {
    int from = 0;
    int to = 0;
    double gbps = 0;         ///< that it is to carry
    CUdeviceptr queues = 0;  ///< kMostLanes LaneQueues in the memory of `from`
    int lanes = 1;
    double reached_gbps = 0;  ///< what that many lanes were measured to carry; 0 before
  };

  /// For the NVLinks between GPUs of `node`, as topology/emulated_mesh.hpp made it; `devices` must outlive
  /// this. Makes the contexts of their GPUs. Throws NotSupported, DriverError.
  EmulatedMesh(std::shared_ptr<const CudaDriver> driver, const Node& node, Devices& devices);
  ~EmulatedMesh();
  EmulatedMesh(const EmulatedMesh&) = delete;
  EmulatedMesh& operator=(const EmulatedMesh&) = delete;

  [[nodiscard]] const std::vector<Path>& paths() const noexcept { return paths_; }
  /// Gives path `index` that many lanes, which reach `gbps`. Not while other threads copy.
  void set_lanes(std::size_t index, int lanes, double gbps);

  /// The copy of a range over an emulated link, by the GPU of the place: the source pushes, the destination
  /// pulls, another GPU does both. Nothing for any other place: the driver carries it. Both ranges must
  /// be memory that this GPU's primary context reaches.
  [[nodiscard]] std::optional<LaneCopy> lane_copy(CUdeviceptr dst, CUdeviceptr src,
                                                  std::uint64_t bytes,
                                                  const CopyPlace& place) const;

 private:
  [[nodiscard]] const Path* find(int from, int to) const noexcept;
  [[nodiscard]] bool reaches(int gpu, int memory) const noexcept;
  void make_queues(Path& path);
  void free_queues() noexcept;

  std::shared_ptr<const CudaDriver> driver_;
  Devices& devices_;
  LaneKernel kernel_;
  std::vector<Path> paths_;
};

}  // namespace polypath
