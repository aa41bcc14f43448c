#include "exec/lane_kernel.hpp"

#include <cstddef>

#include "base/log.hpp"
#include "driver/check.hpp"
#include "exec/context_guard.hpp"
#include "exec/kernels/images.hpp"

namespace polypath {

LaneKernel::LaneKernel(std::shared_ptr<const CudaDriver> driver, Devices& devices,
                       const std::vector<int>& gpus)
    : driver_(std::move(driver)), loaded_(static_cast<std::size_t>(devices.count())) {
  if (copy_lane_image().empty())
    throw NotSupported(
        "a mesh cannot be emulated: this library was built without kernels, because there was no "
        "nvcc (`make setup` brings one; then build anew)");
  if (driver_->module_load_data == nullptr || driver_->module_get_function == nullptr ||
      driver_->module_unload == nullptr || driver_->launch_kernel == nullptr)
    throw NotSupported("a mesh cannot be emulated: " + driver_->library + " loads no kernels");
  try {
    for (const int gpu : gpus) {
      Loaded& one = loaded_[static_cast<std::size_t>(gpu)];
      one.context = devices.context(gpu);
      load(one);
    }
  } catch (...) {
    unload();
    throw;
  }
}

LaneKernel::~LaneKernel() { unload(); }

CUfunction LaneKernel::function(int gpu) const noexcept {
  return loaded_[static_cast<std::size_t>(gpu)].function;
}

void LaneKernel::load(Loaded& loaded) const {
  ContextGuard guard(*driver_);
  guard.use(loaded.context);
  POLYPATH_CHECK(*driver_, module_load_data(&loaded.module, copy_lane_image().data()));
  POLYPATH_CHECK(*driver_,
                 module_get_function(&loaded.function, loaded.module, "polypath_copy_lane"));
}

void LaneKernel::unload() noexcept {
  for (const Loaded& one : loaded_) {
    if (one.module == nullptr) continue;
    try {
      ContextGuard guard(*driver_);
      guard.use(one.context);
      POLYPATH_WARN(*driver_, module_unload(one.module));
    } catch (const Error& error) {
      log_warn("a kernel was not unloaded: {}", error.what());
    }
  }
}

}  // namespace polypath
