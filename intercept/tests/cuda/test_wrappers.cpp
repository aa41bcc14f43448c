// Libraries that wrap a replaced function themselves: each finds the next one, and the last of them
// the shim. This program runs under the shim; it is linked to both wrappers and then to the driver.
#include <gtest/gtest.h>

#include "lookup.hpp"
#include "owner.hpp"

extern "C" {
extern int first_wrapper_calls;
extern int second_wrapper_calls;
void* first_wrapper_next();
void* second_wrapper_next();
}

namespace polypath::preload::test {
namespace {

constexpr const char* kName = "cuMemcpyAsync";

TEST(Wrappers, FindEachOtherAndThenTheShim) {
  EXPECT_EQ((Owner{"libsecond_wrapper", kName}), owner_of(first_wrapper_next()));
  EXPECT_EQ((Owner{kShim, kName}), owner_of(second_wrapper_next()));
}

TEST(Wrappers, LookupFindsTheFirstWrapper) {
  EXPECT_EQ((Owner{"libfirst_wrapper", kName}), owner_of(dlsym(RTLD_DEFAULT, kName)));
  EXPECT_EQ((Owner{"libfirst_wrapper", kName}), owner_of(dlsym(RTLD_NEXT, kName)));
}

TEST(Wrappers, DriverLookup_FindsTheShim) {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  ASSERT_NE(nullptr, driver);
  EXPECT_EQ((Owner{kShim, kName}), owner_of(dlsym(driver, kName)));
}

TEST(Wrappers, CallPassesThroughBothWrappers) {
  const auto copy =
      reinterpret_cast<int (*)(unsigned long long, unsigned long long, size_t, void*)>(
          dlsym(RTLD_DEFAULT, kName));
  first_wrapper_calls = second_wrapper_calls = 0;
  EXPECT_EQ(3, copy(1, 2, 3, nullptr));  // CUDA_ERROR_NOT_INITIALIZED: the driver's own answer
  EXPECT_EQ(1, first_wrapper_calls);
  EXPECT_EQ(1, second_wrapper_calls);
}

}  // namespace
}  // namespace polypath::preload::test
