// The collective kernels, loaded into a GPU's context.
#pragma once

#include <array>
#include <map>
#include <memory>

#include "collectives/kernels/kernels.hpp"
#include "collectives/kernels/sum_args.h"
#include "driver/kernel_module.hpp"

namespace polypath {

/// All of one form, loaded at once: see KernelModule. Thread-safe.
class KernelModules {
 public:
  /// The modules of `context`, which is current, of calls of this form, shared by users in this
  /// process. `driver` and the context outlive them. Throws NotSupported and DriverError, as
  /// KernelModule does.
  static std::shared_ptr<const KernelModules> load(const CudaDriver& driver, CUcontext context,
                                                   KernelForm form = {});

  /// Runs a call's part of one rank, after all that is on `stream`. Outside of capture it is made
  /// ready while what is ahead of it still runs, where the GPU can do that. The context is current.
  /// Throws DriverError.
  void launch(KernelFamily family, UnevenArgs args, unsigned blocks, CUstream stream,
              bool is_captured) const;
  /// Combines elements within the GPU's memory, in the order of the form, on `stream`; `bytes`: of
  /// its largest operand. The context is current. Throws DriverError.
  void launch_sum(SumArgs args, std::uint64_t bytes, CUstream stream) const;
  /// Normalises rows, as norm_kernel() says; else as launch().
  void launch_norm(bool is_fused, NormArgs args, unsigned blocks, CUstream stream,
                   bool is_captured) const;
  /// How many blocks of any collective of them a multiprocessor runs at once.
  [[nodiscard]] int blocks_a_multiprocessor() const noexcept { return blocks_; }
  /// Operations that have kernels of an uneven form.
  static constexpr bool may_be_uneven(CollectiveOp op) noexcept {
    return op == CollectiveOp::reduce_scatter || op == CollectiveOp::all_gather;
  }

 private:
  static constexpr std::size_t kFamilies = kKernelFamilies.size();
  static constexpr std::size_t kOps = 6;
  static constexpr std::size_t kTypes = 10;

  KernelModules(const CudaDriver& driver, CUcontext context, KernelForm form);
  static std::size_t index(KernelFamily family, CollectiveOp op, DataType type) {
    return (static_cast<std::size_t>(family) * kOps + static_cast<std::size_t>(op)) * kTypes +
           static_cast<std::size_t>(type);
  }
  const CudaDriver& driver_;
  bool uses_pdl_ = false;
  std::map<const unsigned char*, std::shared_ptr<const KernelModule>> modules_;  // by image
  std::array<CUfunction, kFamilies * kOps * kTypes> functions_{};
  std::array<CUfunction, kTypes> sums_{};
  std::array<std::array<CUfunction, kTypes>, 2> norms_{};  // the second is fused
  int blocks_ = 1;
};

}  // namespace polypath
