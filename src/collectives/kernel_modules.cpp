#include "collectives/kernel_modules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "driver/check.hpp"
#include "tune/resources.hpp"

namespace polypath {
namespace {

/// Those of this process, by driver and context.
struct Loaded {
  std::mutex mutex;
  std::map<std::pair<const CudaDriver*, CUcontext>, std::weak_ptr<const KernelModules>> by_context;
};

Loaded& loaded() {
  static Loaded all;
  return all;
}

}  // namespace

std::shared_ptr<const KernelModules> KernelModules::of(std::shared_ptr<const CudaDriver> driver,
                                                       CUcontext context) {
  Loaded& all = loaded();
  const std::lock_guard lock(all.mutex);
  auto& known = all.by_context[{driver.get(), context}];
  if (auto found = known.lock()) return found;
  std::shared_ptr<KernelModules> made(new KernelModules(std::move(driver), context));
  known = made;
  return made;
}

KernelModules::KernelModules(std::shared_ptr<const CudaDriver> driver, CUcontext context)
    : driver_(std::move(driver)), context_(context) {
  if (driver_->module_load_data == nullptr || driver_->module_get_function == nullptr ||
      driver_->launch_kernel == nullptr)
    throw NotSupported("collectives need a driver that loads kernels (cuModuleLoadData)");
  try {
    load();
  } catch (...) {
    unload();
    throw;
  }
}

void KernelModules::load() {
  std::map<const unsigned char*, CUmodule> by_image;
  int blocks = 0;
  for (const KernelFamily family : {KernelFamily::cells, KernelFamily::channels})
    for (std::size_t op = 0; op < kOps; ++op)
      for (std::size_t type = 0; type < kTypes; ++type) {
        const auto the_op = static_cast<CollectiveOp>(op);
        const auto the_type = static_cast<DataType>(type);
        const CollectiveKernel kernel = collective_kernel(family, the_op, the_type);
        CUmodule& module = by_image[kernel.image.data()];
        if (module == nullptr) {
          const CUresult result = driver_->module_load_data(&module, kernel.image.data());
          if (result == CUDA_ERROR_INVALID_IMAGE || result == CUDA_ERROR_NO_BINARY_FOR_GPU)
            throw NotSupported(fmt::format(
                "the collective kernels cannot run on this GPU: {}; polypath was built without a "
                "CUDA compiler, or for other GPUs (`make setup` brings one)",
                describe(*driver_, result)));
          if (result != CUDA_SUCCESS)
            throw_driver_error(*driver_, result, "module_load_data", __FILE__, __LINE__);
          modules_.push_back(module);
        }
        CUfunction& function = functions_[index(family, the_op, the_type)];
        POLYPATH_CHECK(*driver_, module_get_function(&function, module, kernel.name));
        int of_this = 1;
        if (driver_->occupancy_max_active_blocks != nullptr)
          POLYPATH_CHECK(*driver_,
                         occupancy_max_active_blocks(&of_this, function, kCollectiveThreads, 0));
        blocks = blocks == 0 ? of_this : std::min(blocks, of_this);
      }
  blocks_ = std::max(1, blocks);
}

void KernelModules::unload() noexcept {
  if (driver_->module_unload == nullptr) return;
  const CurrentContext current(*driver_, context_, std::nothrow);
  for (const CUmodule module : modules_) POLYPATH_WARN(*driver_, module_unload(module));
  modules_.clear();
}

KernelModules::~KernelModules() { unload(); }

}  // namespace polypath
