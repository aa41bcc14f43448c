// The lane kernel (kernels/copy_lane.cu), loaded in the primary contexts of GPUs.
#pragma once

#include <memory>
#include <vector>

#include "exec/devices.hpp"

namespace polypath {

/// Loaded once, by the constructor; then read by any thread.
class LaneKernel {
 public:
  /// In the primary context of each of `gpus`, made if need be (slow). Throws NotSupported when this library
  /// was built without kernels or the driver cannot load any, DriverError.
  LaneKernel(std::shared_ptr<const CudaDriver> driver, Devices& devices,
             const std::vector<int>& gpus);
  ~LaneKernel();
  LaneKernel(const LaneKernel&) = delete;
  LaneKernel& operator=(const LaneKernel&) = delete;

  /// Null for a GPU that it was not loaded for.
  [[nodiscard]] CUfunction function(int gpu) const noexcept;

 private:
  struct Loaded {
    CUcontext context = nullptr;
    CUmodule module = nullptr;
    CUfunction function = nullptr;
  };

  void load(Loaded& loaded) const;
  void unload() noexcept;

  std::shared_ptr<const CudaDriver> driver_;
  std::vector<Loaded> loaded_;  // by GPU
};

}  // namespace polypath
