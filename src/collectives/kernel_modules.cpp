#include "collectives/kernel_modules.hpp"

#include <algorithm>

#include "driver/check.hpp"

namespace polypath {

KernelModules::KernelModules(const CudaDriver& driver, CUcontext context) {
  int blocks = 0;
  const auto load_function = [&](CUfunction& function, const CollectiveKernel& kernel) {
    auto& module = modules_[kernel.image.data()];
    if (module == nullptr) module = KernelModule::of(driver, context, kernel.image);
    function = module->function(kernel.name);
  };
  for (std::size_t type = 0; type < kTypes; ++type) {
    const auto the_type = static_cast<DataType>(type);
    load_function(sums_[type], sum_kernel(the_type));
    for (const KernelFamily family : {KernelFamily::cells, KernelFamily::channels})
      for (std::size_t op = 0; op < kOps; ++op) {
        const auto the_op = static_cast<CollectiveOp>(op);
        CUfunction& function = functions_[index(family, the_op, the_type)];
        load_function(function, collective_kernel(family, the_op, the_type));
        int of_this = 1;
        if (driver.occupancy_max_active_blocks != nullptr)
          POLYPATH_CHECK(driver,
                         occupancy_max_active_blocks(&of_this, function, kCollectiveThreads, 0));
        blocks = blocks == 0 ? of_this : std::min(blocks, of_this);
      }
  }
  blocks_ = std::max(1, blocks);
}

}  // namespace polypath
