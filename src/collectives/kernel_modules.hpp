// The collective kernels, loaded into a GPU's context.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <span>

#include "collectives/kernels/kernels.hpp"
#include "driver/cuda_driver.hpp"

namespace polypath {

/// All of them, loaded at once: a module that is loaded while a kernel waits for another rank may
/// wait for that kernel. Thread-safe once it is made.
class KernelModules {
 public:
  /// Those of `context`, which is current and stays alive while they are used; made when nobody
  /// has them, else shared. Throws NotSupported for a build without a CUDA compiler and for a
  /// driver that cannot load modules.
  static std::shared_ptr<const KernelModules> of(std::shared_ptr<const CudaDriver> driver,
                                                 CUcontext context);
  ~KernelModules();
  KernelModules(const KernelModules&) = delete;
  KernelModules& operator=(const KernelModules&) = delete;

  [[nodiscard]] CUfunction function(KernelFamily family, CollectiveOp op, DataType type) const {
    return functions_[index(family, op, type)];
  }
  [[nodiscard]] CUfunction sums(DataType type) const {
    return sums_[static_cast<std::size_t>(type)];
  }
  /// How many blocks of any collective of them a multiprocessor runs at once.
  [[nodiscard]] int blocks_a_multiprocessor() const noexcept { return blocks_; }

 private:
  static constexpr std::size_t kFamilies = 2;
  static constexpr std::size_t kOps = 6;
  static constexpr std::size_t kTypes = 10;

  KernelModules(std::shared_ptr<const CudaDriver> driver, CUcontext context);
  static std::size_t index(KernelFamily family, CollectiveOp op, DataType type) {
    return (static_cast<std::size_t>(family) * kOps + static_cast<std::size_t>(op)) * kTypes +
           static_cast<std::size_t>(type);
  }
  void load();
  /// The module of an image, loaded at its first use.
  CUmodule module_of(std::span<const unsigned char> image);
  void unload() noexcept;

  std::shared_ptr<const CudaDriver> driver_;
  CUcontext context_;
  std::map<const unsigned char*, CUmodule> modules_;  // by image
  std::array<CUfunction, kFamilies * kOps * kTypes> functions_{};
  std::array<CUfunction, kTypes> sums_{};
  int blocks_ = 1;
};

}  // namespace polypath
