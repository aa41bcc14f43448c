// The GPUs' primary contexts, and peer access between them. A context is made only when asked for:
// it takes 0.2 s and some hundred megabytes of the GPU.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "driver/cuda_driver.hpp"

namespace polypath {

/// Thread-safe. Everything retained is released by the destructor.
class Devices {
 public:
  Devices(std::shared_ptr<const CudaDriver> driver, int count);
  ~Devices();
  Devices(const Devices&) = delete;
  Devices& operator=(const Devices&) = delete;

  [[nodiscard]] int count() const noexcept { return static_cast<int>(contexts_.size()); }

  /// The primary context of `gpu`, made if need be (slow then).
  CUcontext context(int gpu);
  /// The primary context of `gpu` if somebody has already made it, else null. Fast.
  CUcontext context_if_active(int gpu);
  /// The GPU whose primary context this is, or -1 for any other context. Fast.
  int gpu_of(CUcontext context);

  /// Lets work of `from`'s context reach the memory of `to`. Once a pair; throws when it cannot.
  void enable_peer_access(int from, int to);

 private:
  // Both with mutex_ held.
  CUcontext retain(int gpu);
  CUcontext retain_if_active(int gpu);

  std::shared_ptr<const CudaDriver> driver_;
  std::mutex mutex_;
  std::vector<CUcontext> contexts_;
  std::set<std::pair<int, int>> peers_;
};

}  // namespace polypath
