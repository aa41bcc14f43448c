// Launching a program's kernels: what a Coordinator has for it.
#pragma once

#include <array>
#include <functional>

#include "polypath/uniconn/environment.hpp"

namespace polypath::uniconn::detail {

using Extents = std::array<unsigned, 3>;

/// The number of a dim3, or a number.
template <typename Extent>
Extents extents(const Extent& extent) {
  if constexpr (requires { extent.x; }) {
    return {extent.x, extent.y, extent.z};
  } else {
    return {static_cast<unsigned>(extent), 1, 1};
  }
}

/// `Together`: all blocks run at once, so that they may wait for each other and for other GPUs.
template <BackendLibrary B, bool Together, typename Kernel>
std::function<void(Stream)> kernel_launch(const Cuda& cuda, Kernel kernel, Extents grid,
                                          Extents block, std::size_t shared_bytes, void** args) {
  if constexpr (std::is_convertible_v<Kernel, CUfunc_st*> && !std::is_null_pointer_v<Kernel>) {
    CUfunc_st* const function = kernel;
    const auto shared = static_cast<unsigned>(shared_bytes);
    return [=, &cuda](Stream stream) {
      if constexpr (Together) {
        cuda.check(cuda.launch_together(function, grid[0], grid[1], grid[2], block[0], block[1],
                                        block[2], shared, stream, args),
                   "cuLaunchCooperativeKernel");
      } else {
        cuda.check(cuda.launch(function, grid[0], grid[1], grid[2], block[0], block[1], block[2],
                               shared, stream, args, nullptr),
                   "cuLaunchKernel");
      }
    };
  } else {
#ifdef CUDART_VERSION
    // A __global__ function: the runtime knows it by its address.
    const auto* const function = reinterpret_cast<const void*>(kernel);
    const dim3 grids(grid[0], grid[1], grid[2]);
    const dim3 blocks(block[0], block[1], block[2]);
    return [=](Stream stream) {
      if constexpr (Together && requires {
                      B::World::launch_together(function, grid, block, args, shared_bytes, stream);
                    }) {
        return B::World::launch_together(function, grid, block, args, shared_bytes, stream);
      }
      const cudaError_t result =
          Together
              ? cudaLaunchCooperativeKernel(function, grids, blocks, args, shared_bytes, stream)
              : cudaLaunchKernel(function, grids, blocks, args, shared_bytes, stream);
      if (result != cudaSuccess)
        throw error(POLYPATH_DRIVER_ERROR,
                    (std::string("cudaLaunchKernel: ") + cudaGetErrorName(result)).c_str());
    };
#else
    static_assert(sizeof(Kernel) == 0,
                  "BindKernel takes a CUfunction; include cuda_runtime.h before UNICONN's headers "
                  "for a __global__ function");
    return {};
#endif
  }
}

/// The kernel of a Coordinator of mode M.
template <BackendLibrary B, LaunchMode M>
class Launches {
 public:
  /// The kernel that LaunchKernel starts, when K is this Coordinator's mode: a __global__ function
  /// or a CUfunction; `args` are read at each launch. `Extent`: dim3, or a number.
  template <LaunchMode K, typename Kernel, typename Extent>
  void BindKernel(Kernel kernel, Extent grid, Extent block, std::size_t shared_bytes, void** args) {
    if constexpr (K == M)
      launch_ = kernel_launch<B, (M == LaunchMode::PureDevice)>(job_->cuda, kernel, extents(grid),
                                                                extents(block), shared_bytes, args);
  }
  /// Or anything that issues work to the stream that it is given.
  template <LaunchMode K, typename Callable>
    requires std::invocable<Callable&, Stream>
  void BindKernel(Callable callable) {
    if constexpr (K == M) launch_ = std::move(callable);
  }
  void LaunchKernel() {
    if (!launch_)
      throw error(POLYPATH_INVALID_ARGUMENT, "LaunchKernel: no kernel of this mode is bound");
    launch_(stream_);
  }

 protected:
  explicit Launches(Stream stream) : job_(Current<B>::get()), stream_(stream) {}
  ~Launches() = default;

  std::shared_ptr<RankSession<B>> job_;
  Stream stream_;

 private:
  std::function<void(Stream)> launch_;
};

}  // namespace polypath::uniconn::detail
