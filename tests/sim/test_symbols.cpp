// The library exports every function that the engine may ask a driver for, but those that run kernels, and
// nothing of itself.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

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

// There are no kernels here. What is absent cannot be taken for what works: whoever wants kernels asks
// for these functions first.
constexpr std::array<std::string_view, 6> kKernels{
    "cuGraphAddKernelNode_v2", "cuGraphExecKernelNodeSetParams_v2",
    "cuModuleLoadData",        "cuModuleUnload",
    "cuModuleGetFunction",     "cuLaunchKernel"};

class Symbols : public testing::Test {
 protected:
  void SetUp() override {
    library = dlopen(POLYPATH_SIM_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(nullptr, library) << dlerror();
  }
  void* library = nullptr;
};

TEST_F(Symbols, AllOfTheListsAreThere) {
  for (const char* name : kCudaNames) {
    const bool is_wanted = std::ranges::find(kKernels, name) == kKernels.end();
    EXPECT_EQ(is_wanted, dlsym(library, name) != nullptr) << name;
  }
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
