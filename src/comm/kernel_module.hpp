// A module of kernels, loaded into a GPU's context.
#pragma once

#include <memory>
#include <span>

#include "driver/cuda_driver.hpp"

namespace polypath {

/// Shared by all of this process that ask for the same one. Thread-safe.
class KernelModule {
 public:
  /// That of `image` (a static array, for cuModuleLoadData) in `context`, which is current; loaded
  /// when nobody has it. `driver` and the context outlive it. Throws NotSupported for a driver that
  /// cannot load modules, for a GPU that the image has no code for and for a build without a CUDA
  /// compiler; DriverError. To be made before kernels run that wait for other ranks: loading may
  /// wait for those.
  static std::shared_ptr<const KernelModule> of(const CudaDriver& driver, CUcontext context,
                                                std::span<const unsigned char> image);
  ~KernelModule();
  KernelModule(const KernelModule&) = delete;
  KernelModule& operator=(const KernelModule&) = delete;

  /// The kernel of that name, loaded. Throws DriverError.
  [[nodiscard]] CUfunction function(const char* name) const;

 private:
  KernelModule(const CudaDriver& driver, CUcontext context, std::span<const unsigned char> image);

  const CudaDriver& driver_;
  CUcontext context_;
  CUmodule module_ = nullptr;
};

}  // namespace polypath
