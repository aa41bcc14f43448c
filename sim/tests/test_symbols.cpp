// The library exports every function that the engine may ask a driver for, and nothing of itself.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>

namespace polypath::sim::test {
namespace {

constexpr std::array kCudaNames{
#define POLYPATH_CUDA(member, name, type, need) name,
#include "driver/cuda_symbols.def"
    "cuMemcpyDtoDAsync_v2", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemcpyPeerAsync"};

constexpr std::array kNvmlNames{
#define POLYPATH_NVML(member, name, type) name,
#include "driver/nvml_symbols.def"
    "nvmlShutdown"};

class Symbols : public testing::Test {
 protected:
  void SetUp() override {
    library = dlopen(POLYPATH_SIM_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(nullptr, library) << dlerror();
  }
  void* library = nullptr;
};

TEST_F(Symbols, AllOfTheListsAreThere) {
  for (const char* name : kCudaNames) EXPECT_NE(nullptr, dlsym(library, name)) << name;
  for (const char* name : kNvmlNames) EXPECT_NE(nullptr, dlsym(library, name)) << name;
}

TEST_F(Symbols, NothingElseWorksBeforeCuInit) {
  // libcudart asks for its functions before it calls cuInit.
  const auto find = reinterpret_cast<int (*)(const char*, void**, int, std::uint64_t, int*)>(
      dlsym(library, "cuGetProcAddress_v2"));
  void* function = nullptr;
  EXPECT_EQ(0, find("cuDeviceGetCount", &function, 12000, 0, nullptr));
  EXPECT_EQ(dlsym(library, "cuDeviceGetCount"), function);

  const auto count = reinterpret_cast<int (*)(int*)>(dlsym(library, "cuDeviceGetCount"));
  int gpus = 0;
  EXPECT_EQ(3, count(&gpus));  // CUDA_ERROR_NOT_INITIALIZED
}

}  // namespace
}  // namespace polypath::sim::test
