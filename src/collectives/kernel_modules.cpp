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

CUmodule KernelModules::module_of(std::span<const unsigned char> image) {
  CUmodule& module = modules_[image.data()];
  if (module != nullptr) return module;
  const CUresult result = driver_->module_load_data(&module, image.data());
  if (result == CUDA_ERROR_INVALID_IMAGE || result == CUDA_ERROR_NO_BINARY_FOR_GPU)
    throw NotSupported(fmt::format(
        "the collective kernels cannot run on this GPU: {}; polypath was built without a "
        "CUDA compiler, or for other GPUs (`make setup` brings one)",
        describe(*driver_, result)));
  if (result != CUDA_SUCCESS)
    throw_driver_error(*driver_, result, "module_load_data", __FILE__, __LINE__);
  return module;
}

void KernelModules::load() {
  int blocks = 0;
  const auto load_function = [&](CUfunction& function, const CollectiveKernel& kernel) {
    POLYPATH_CHECK(*driver_, module_get_function(&function, module_of(kernel.image), kernel.name));
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
        if (driver_->occupancy_max_active_blocks != nullptr)
          POLYPATH_CHECK(*driver_,
                         occupancy_max_active_blocks(&of_this, function, kCollectiveThreads, 0));
        blocks = blocks == 0 ? of_this : std::min(blocks, of_this);
      }
  }
  blocks_ = std::max(1, blocks);
}

void KernelModules::unload() noexcept {
  if (driver_->module_unload == nullptr) return;
  const CurrentContext current(*driver_, context_, std::nothrow);
  for (const auto& [image, module] : modules_)
    if (module != nullptr) POLYPATH_WARN(*driver_, module_unload(module));
  modules_.clear();
}

KernelModules::~KernelModules() { unload(); }

}  // namespace polypath
