// What carries copies over the links of an emulated mesh: a kernel (kernels/link_copy.cu) with as
// many thread blocks as give a link its rate, one copy after another on each of the link's lanes.
//
//   constructor  contexts, peer access, the kernel, the lanes' words     slow
//   calibrate    how many lanes each link has                            before the first copy
//   link_copy    the copy, to be launched or put into a graph            any thread, no driver call
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "driver/cuda_driver.hpp"
#include "topology/node.hpp"

namespace polypath {

/// A directed link between two GPUs, as it is emulated.
struct EmulatedLink {
  int from = 0;
  int to = 0;
  double gbps = 0;  ///< the rate to emulate
  int lanes = 1;
  double reached_gbps = 0;  ///< what that many lanes were measured to carry; 0 before
};

/// One copy over an emulated link, as a kernel launch: a plain value that a stream runs, or that a
/// node of a CUDA graph carries.
struct LaneCopy {
  CUfunction function = nullptr;  ///< belongs to the primary context of the GPU that copies
  unsigned int blocks = 0;        ///< lanes of the link
  CUdeviceptr dst = 0;
  CUdeviceptr src = 0;
  std::uint64_t bytes = 0;
  CUdeviceptr queues = 0;  ///< `blocks` LaneQueues

  /// What kernelParams points to: this value's members, so it is valid while that neither ends nor
  /// moves. The driver reads them within the call that gets them.
  using Arguments = std::array<void*, 4>;
  Arguments arguments() noexcept { return {&dst, &src, &bytes, &queues}; }

  /// Issues it on `stream`, a stream of the function's context, which must be current.
  CUresult launch(const CudaDriver& driver, CUstream stream);
  /// For a kernel node; `storage` must live as long as this value until the call has returned. An
  /// instantiated node may get other addresses, sizes and links, but no function of another
  /// context.
  CUDA_KERNEL_NODE_PARAMS node_params(Arguments& storage) noexcept;
};

class EmulatedLinks {
 public:
  static constexpr int kMaxLanes = 64;  ///< a link

  /// For the NVLinks between GPUs of `node`, as mesh_node.hpp made it. Makes the primary contexts
  /// of their GPUs, and holds them. Throws NotSupported when this library was built without kernels
  /// or the driver cannot load any, DriverError.
  EmulatedLinks(std::shared_ptr<const CudaDriver> driver, const Node& node);
  ~EmulatedLinks();
  EmulatedLinks(const EmulatedLinks&) = delete;
  EmulatedLinks& operator=(const EmulatedLinks&) = delete;

  [[nodiscard]] const std::vector<EmulatedLink>& links() const noexcept { return links_; }
  /// Gives link `index` that many lanes, which reach `gbps`. Not while other threads copy.
  void set_lanes(std::size_t index, int lanes, double gbps);
  /// Measures, over each link alone, copies of 64 MiB with some numbers of lanes, and sets the
  /// number whose rate is nearest to the link's rate to emulate. A warning says when that is more
  /// than 10 % off: one lane is the step between rates. Tens of milliseconds a link; the node must
  /// be idle. Takes 128 MiB of a GPU meanwhile. Throws DriverError.
  void calibrate();

  /// The GPU, one with an emulated link, whose primary context this is; otherwise -1.
  [[nodiscard]] int gpu_of(CUcontext context) const noexcept;
  /// The copy of a range in the memory of GPU `from` to that of `to`, by a stream of `gpu`: the
  /// source pushes, the destination pulls, another GPU does both. Nothing where no link between
  /// them is emulated or `gpu` does not reach both. Both ranges must be memory that its primary
  /// context reaches.
  [[nodiscard]] std::optional<LaneCopy> link_copy(CUdeviceptr dst, CUdeviceptr src,
                                                  std::uint64_t bytes, int from, int to,
                                                  int gpu) const;

 private:
  class Timer;
  /// A GPU with an emulated link; all null for others.
  struct Loaded {
    CUcontext context = nullptr;
    CUmodule module = nullptr;
    CUfunction function = nullptr;
  };

  [[nodiscard]] const Loaded& on(int gpu) const { return gpus_.at(static_cast<std::size_t>(gpu)); }
  [[nodiscard]] std::size_t find(int from, int to) const noexcept;
  [[nodiscard]] bool reaches(int gpu, int memory) const noexcept;
  void load(int gpu);
  void enable_peer_access(int from, int to);
  void make_queues(int gpu);
  void free_all() noexcept;

  std::shared_ptr<const CudaDriver> driver_;
  std::vector<Loaded> gpus_;
  std::vector<EmulatedLink> links_;
  std::vector<CUdeviceptr> queues_;  ///< by link: kMaxLanes LaneQueues in the memory of its `from`
};

}  // namespace polypath
