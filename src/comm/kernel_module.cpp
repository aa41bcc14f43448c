#include "comm/kernel_module.hpp"

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <tuple>

#include "driver/check.hpp"
#include "tune/resources.hpp"

namespace polypath {
namespace {

/// Those of this process, by driver, context and image.
struct LoadedModules {
  using Key = std::tuple<const CudaDriver*, CUcontext, const unsigned char*>;
  std::mutex mutex;
  std::map<Key, std::weak_ptr<const KernelModule>> all;
};

LoadedModules& loaded_modules() {
  static LoadedModules* const modules = new LoadedModules;  // as long as anybody's communicator
  return *modules;
}

}  // namespace

std::shared_ptr<const KernelModule> KernelModule::of(const CudaDriver& driver, CUcontext context,
                                                     std::span<const unsigned char> image) {
  LoadedModules& loaded = loaded_modules();
  const std::lock_guard lock(loaded.mutex);
  auto& known = loaded.all[{&driver, context, image.data()}];
  if (auto found = known.lock()) return found;
  std::shared_ptr<const KernelModule> made(new KernelModule(driver, context, image));
  known = made;
  return made;
}

KernelModule::KernelModule(const CudaDriver& driver, CUcontext context,
                           std::span<const unsigned char> image)
    : driver_(driver), context_(context) {
  if (driver.module_load_data == nullptr || driver.module_get_function == nullptr ||
      driver.module_unload == nullptr || driver.launch_kernel == nullptr)
    throw NotSupported("the driver cannot load kernels (cuModuleLoadData)");
  const CUresult result = driver.module_load_data(&module_, image.data());
  if (result == CUDA_ERROR_INVALID_IMAGE || result == CUDA_ERROR_NO_BINARY_FOR_GPU)
    throw NotSupported(fmt::format(
        "the kernels cannot run on this GPU: {}; polypath was built without a CUDA compiler, or "
        "for other GPUs (`make setup` brings one)",
        describe(driver, result)));
  if (result != CUDA_SUCCESS)
    throw_driver_error(driver, result, "module_load_data", __FILE__, __LINE__);
}

KernelModule::~KernelModule() {
  const CurrentContext current(driver_, context_, std::nothrow);
  POLYPATH_WARN(driver_, module_unload(module_));
}

CUfunction KernelModule::function(const char* name) const {
  CUfunction found = nullptr;
  POLYPATH_CHECK(driver_, module_get_function(&found, module_, name));
  return found;
}

}  // namespace polypath
