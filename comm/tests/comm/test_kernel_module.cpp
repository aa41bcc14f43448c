// Kernels are loaded once a context, for all users that come and go.
#include <gtest/gtest.h>

#include <optional>

#include "comm/kernels/images.hpp"
#include "driver/kernel_module.hpp"
#include "driver/resources.hpp"
#include "group.hpp"

namespace polypath::test {
namespace {

int loads = 0;
int unloads = 0;

/// The node's, which counts.
const CudaDriver& counting_driver() {
  static const CudaDriver driver = [] {
    CudaDriver table = *group_node().driver;
    table.module_load_data = [](CUmodule* module, const void* image) {
      ++loads;
      return group_node().driver->module_load_data(module, image);
    };
    table.module_unload = [](CUmodule module) {
      ++unloads;
      return group_node().driver->module_unload(module);
    };
    return table;
  }();
  return driver;
}

CUfunction loaded_in(CUcontext context) {
  const CudaDriver& driver = counting_driver();
  const CurrentContext current(driver, context);
  return KernelModule::load(driver, context, stream_wait_image())->function("polypath_stream_wait");
}

TEST(KernelModule, LoadedOnceAContext) {
  NEEDS_GPUS(2);
  const int gpu = gpus_up_to(8) - 1;  // where no other test leaves a context
  const CudaDriver& driver = counting_driver();
  loads = unloads = 0;
  std::optional<PrimaryContext> place(std::in_place, driver, gpu);
  const CUfunction first = loaded_in(place->get());
  EXPECT_EQ(loaded_in(place->get()), first);
  EXPECT_EQ(loads, 1);

  // Another one in its place: it may have the same handle.
  place.reset();
  place.emplace(driver, gpu);
  EXPECT_NE(loaded_in(place->get()), nullptr);
  EXPECT_EQ(loads, 2);
  EXPECT_EQ(unloads, 0);
}

}  // namespace
}  // namespace polypath::test
