// The one way by which copies are issued: the driver's asynchronous copy, or, between GPUs whose link is
// emulated, the lane kernel.
#pragma once

#include <memory>
#include <optional>

#include "driver/check.hpp"
#include "exec/emulated_mesh.hpp"

namespace polypath {

/// Thread-safe. `mesh` may be null: then every copy is the driver's; it must outlive this.
class CopyEngine {
 public:
  CopyEngine(std::shared_ptr<const CudaDriver> driver, const EmulatedMesh* mesh)
      : driver_(std::move(driver)), mesh_(mesh) {}

  [[nodiscard]] bool emulates() const noexcept { return mesh_ != nullptr; }

  /// The kernel launch that carries such a copy, for a graph's node; nothing where the driver copies.
  [[nodiscard]] std::optional<LaneCopy> lane_copy(CUdeviceptr dst, CUdeviceptr src,
                                                  std::uint64_t bytes,
                                                  const CopyPlace& place) const {
    return mesh_ == nullptr ? std::nullopt : mesh_->lane_copy(dst, src, bytes, place);
  }

  /// Issues the copy on `stream`, of the primary context of place.gpu, which is current. The driver's result.
  CUresult issue(CUdeviceptr dst, CUdeviceptr src, std::uint64_t bytes, const CopyPlace& place,
                 CUstream stream) const {
    if (auto lanes = lane_copy(dst, src, bytes, place)) return lanes->launch(*driver_, stream);
    return driver_->memcpy_async(dst, src, bytes, stream);
  }

  /// The same; throws DriverError.
  void copy(CUdeviceptr dst, CUdeviceptr src, std::uint64_t bytes, const CopyPlace& place,
            CUstream stream) const {
    const CUresult result = issue(dst, src, bytes, place, stream);
    if (result != CUDA_SUCCESS) [[unlikely]]
      throw_driver_error(*driver_, result,
                         emulates() ? "a copy on an emulated mesh" : "memcpy_async", __FILE__,
                         __LINE__);
  }

 private:
  std::shared_ptr<const CudaDriver> driver_;
  const EmulatedMesh* mesh_;
};

}  // namespace polypath
