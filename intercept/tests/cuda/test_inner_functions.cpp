// Functions that a driver hands out and does not export: known by name, version and flags, as far
// as this version of CUDA has them. This program runs under the shim.
#include <cuda.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include "owner.hpp"

namespace polypath::preload::test {
namespace {

class InnerFunctions : public testing::Test {
 protected:
  std::string find(const char* name, int version, cuuint64_t flags = 0) {
    void* function = nullptr;
    EXPECT_EQ(CUDA_SUCCESS, ask(name, &function, version, flags, nullptr));
    const Owner owner = owner_of(function);
    return owner.library == kShim ? owner.function : owner.library;
  }

  void* driver = dlopen(POLYPATH_INNER_DRIVER, RTLD_NOW);
  decltype(&cuGetProcAddress_v2) ask =
      reinterpret_cast<decltype(&cuGetProcAddress_v2)>(dlsym(driver, "cuGetProcAddress_v2"));
};

TEST_F(InnerFunctions, FoundByNameVersionAndFlags) {
  ASSERT_NE(nullptr, driver) << dlerror();
  constexpr cuuint64_t kPerThread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  constexpr const char* kDrivers = "libcuda";
  EXPECT_EQ(kDrivers, find("cuMemcpyDtoDAsync", 3010));
  EXPECT_EQ("cuMemcpyDtoDAsync_v2", find("cuMemcpyDtoDAsync", 3020));
  // No legacy form stands in for a per-thread one, which both flags together mean as well.
  EXPECT_EQ(kDrivers, find("cuMemcpyDtoDAsync", 6050, kPerThread));
  EXPECT_EQ("cuMemcpyDtoDAsync_v2_ptsz", find("cuMemcpyDtoDAsync", 7000, kPerThread));
  EXPECT_EQ("cuMemcpyDtoDAsync_v2_ptsz",
            find("cuMemcpyDtoDAsync", 7000, kPerThread | CU_GET_PROC_ADDRESS_LEGACY_STREAM));
  EXPECT_EQ("cuMemcpyBatchAsync", find("cuMemcpyBatchAsync", 12080));
  EXPECT_EQ("cuMemcpyBatchAsync_v2", find("cuMemcpyBatchAsync", 13000));
  EXPECT_EQ("cuMemcpyBatchAsync_v2_ptsz", find("cuMemcpyBatchAsync", 13000, kPerThread));
  EXPECT_EQ("cuMemcpy_ptds", find("cuMemcpy", CUDA_VERSION, kPerThread));
  // A later version may have given the name another meaning.
  EXPECT_EQ(kDrivers, find("cuMemcpyDtoDAsync", CUDA_VERSION + 10));
  EXPECT_EQ(kDrivers, find("cuMemcpyDtoDAsync", -1));  // the driver's newest
  // Neither the exported names nor others.
  EXPECT_EQ(kDrivers, find("cuMemcpyDtoDAsync_v2", CUDA_VERSION));
  EXPECT_EQ(kDrivers, find("cuMemcpyHtoAAsync", CUDA_VERSION));
}

}  // namespace
}  // namespace polypath::preload::test
