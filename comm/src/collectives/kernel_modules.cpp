#include "collectives/kernel_modules.hpp"

#include <algorithm>
#include <utility>

#include "base/units.hpp"
#include "driver/check.hpp"
#include "driver/launch.hpp"

namespace polypath {
namespace {

/// What a block of a sum gets at least, and how many there are at most: enough for a GPU's memory,
/// and most of its multiprocessors stay free.
constexpr std::uint64_t kBytesOfABlock = 32 * kKiB;
constexpr std::uint64_t kMaxSumBlocks = 48;

}  // namespace

std::shared_ptr<const KernelModules> KernelModules::load(const CudaDriver& driver,
                                                         CUcontext context, KernelForm form) {
  static auto& all = *new OncePerContext<KernelModules, std::pair<SumOrder, bool>>;
  return all.get(driver, context, {form.order, form.is_uneven}, [&] {
    return std::shared_ptr<const KernelModules>(new KernelModules(driver, context, form));
  });
}

KernelModules::KernelModules(const CudaDriver& driver, CUcontext context, KernelForm form)
    : driver_(driver), uses_pdl_(supports_pdl(driver)) {
  int blocks = 0;
  const auto load_function = [&](CUfunction& function, const CollectiveKernel& kernel) {
    auto& module = modules_[kernel.image.data()];
    if (module == nullptr) module = KernelModule::load(driver, context, kernel.image);
    function = module->function(kernel.name);
  };
  // All blocks of a kernel that waits for other ranks run at once.
  const auto note_blocks = [&](CUfunction function) {
    int of_this = 1;
    if (driver.occupancy_max_active_blocks != nullptr)
      POLYPATH_CHECK(driver,
                     occupancy_max_active_blocks(&of_this, function, kCollectiveThreads, 0));
    blocks = blocks == 0 ? of_this : std::min(blocks, of_this);
  };
  for (const DataType type : {DataType::float16, DataType::bfloat16}) {
    const auto index = static_cast<std::size_t>(type);
    for (const bool is_fused : {false, true})
      load_function(norms_[is_fused ? 1 : 0][index], norm_kernel(is_fused, type));
    note_blocks(norms_[1][index]);
  }
  for (std::size_t type = 0; type < kTypes; ++type) {
    const auto the_type = static_cast<DataType>(type);
    load_function(sums_[type], sum_kernel(the_type, form.order));
    for (const KernelFamily family : kKernelFamilies)
      for (std::size_t op = 0; op < kOps; ++op) {
        const auto the_op = static_cast<CollectiveOp>(op);
        if (form.is_uneven && !may_be_uneven(the_op)) continue;
        const CollectiveKernel kernel = collective_kernel(family, the_op, the_type, form);
        if (kernel.name == nullptr) continue;
        CUfunction& function = functions_[index(family, the_op, the_type)];
        load_function(function, kernel);
        note_blocks(function);
      }
  }
  blocks_ = std::max(1, blocks);
}

void KernelModules::launch(KernelFamily family, UnevenArgs args, unsigned blocks, CUstream stream,
                           bool is_captured) const {
  CUfunction function = functions_[index(family, args.op, args.type)];
  void* parameters[] = {&args};
  launch_pdl(driver_, uses_pdl_ && !is_captured, function, {blocks, kCollectiveThreads}, stream,
             parameters);
}

void KernelModules::launch_norm(bool is_fused, NormArgs args, unsigned blocks, CUstream stream,
                                bool is_captured) const {
  CUfunction function = norms_[is_fused ? 1 : 0][static_cast<std::size_t>(args.call.type)];
  void* parameters[] = {&args};
  launch_pdl(driver_, uses_pdl_ && !is_captured, function, {blocks, kCollectiveThreads}, stream,
             parameters);
}

void KernelModules::launch_sum(SumArgs args, std::uint64_t bytes, CUstream stream) const {
  void* parameters[] = {&args};
  const auto blocks =
      static_cast<unsigned>(std::clamp<std::uint64_t>(bytes / kBytesOfABlock, 1, kMaxSumBlocks));
  POLYPATH_CHECK(driver_, launch_kernel(sums_[static_cast<std::size_t>(args.type)], blocks, 1, 1,
                                        kCollectiveThreads, 1, 1, 0, stream, parameters, nullptr));
}

}  // namespace polypath
