#include "driver/kernel_module.hpp"

#include <fmt/format.h>

#include "driver/check.hpp"
#include "driver/resources.hpp"

namespace polypath {

std::shared_ptr<const KernelModule> KernelModule::load(const CudaDriver& driver, CUcontext context,
                                                       std::span<const unsigned char> image) {
  // Never destroyed: nothing is unloaded when the process ends.
  static auto& modules = *new OncePerContext<KernelModule, const unsigned char*>;
  return modules.get(driver, context, image.data(), [&] {
    return std::shared_ptr<const KernelModule>(new KernelModule(driver, context, image));
  });
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
  CUfunction kernel = nullptr;
  POLYPATH_CHECK(driver_, module_get_function(&kernel, module_, name));
  return kernel;
}

}  // namespace polypath
