// The names in a program that has not loaded the driver, and then loads it. It runs under the shim.
#include <gtest/gtest.h>

#include "lookup.hpp"
#include "owner.hpp"
#include "replaced_names.hpp"

namespace {
int searches = 0;
}  // namespace

/// In the place of libc's, for the shim as well: counts the searches for the driver.
extern "C" __attribute__((visibility("default"))) void* dlopen(const char* file, int mode) {
  static const auto next =
      reinterpret_cast<void* (*)(const char*, int)>(dlsym(RTLD_NEXT, "dlopen"));
  if (file != nullptr && std::string_view(file).find("libcuda") != std::string_view::npos)
    ++searches;
  return next(file, mode);
}

namespace polypath::preload::test {
namespace {

// Before others load it. What is called often in a program without GPUs searches once.
TEST(NamesWithoutDriver, DriverIsSearchedOnce) {
  void* const shim = dlopen(POLYPATH_SHIM, RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(nullptr, shim) << "not under the shim";
  const auto copy = reinterpret_cast<CUresult (*)(CUdeviceptr, CUdeviceptr, std::size_t)>(
      dlvsym(shim, "cuMemcpyDtoD_v2", "POLYPATH_PRELOAD"));
  ASSERT_NE(nullptr, copy);
  copy(0, 0, 1);
  const int first = searches;
  EXPECT_GT(first, 0);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(CUDA_ERROR_NOT_INITIALIZED, copy(0, 0, 1));
  EXPECT_EQ(first, searches);
}

constexpr const char* kName = "cuMemcpyDtoDAsync_v2";

// One test after the other: what has been loaded is not unloaded.
TEST(NamesWithoutDriver, ComeAndGoAsWithoutTheShim) {
  ASSERT_NE(nullptr, dlopen(POLYPATH_SHIM, RTLD_NOW | RTLD_NOLOAD)) << "not under the shim";
  for (const ReplacedName& entry : kReplaced) {
    EXPECT_EQ(nullptr, dlsym(RTLD_DEFAULT, entry.name.data())) << entry.name;
    EXPECT_EQ(nullptr, dlsym(RTLD_NEXT, entry.name.data())) << entry.name;
  }
  const std::string program = program_invocation_name;
  EXPECT_EQ(program + ": undefined symbol: " + kName,
            error_of([] { return dlsym(RTLD_DEFAULT, kName); }));

  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(nullptr, driver) << dlerror();
  EXPECT_EQ(nullptr, dlsym(RTLD_DEFAULT, kName)) << "it is not visible to all";
  EXPECT_EQ(nullptr, dlsym(RTLD_NEXT, kName));
  EXPECT_EQ((Owner{kShim, kName}), owner_of(dlsym(driver, kName)));

  // A library that was loaded with it sees it all the same.
  void* const user = dlopen(POLYPATH_DRIVER_USER, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(nullptr, user) << dlerror();
  const auto look_up =
      reinterpret_cast<void* (*)(void*, const char*)>(dlsym(user, "look_up_as_user"));
  ASSERT_NE(nullptr, look_up);
  EXPECT_EQ((Owner{kShim, kName}), owner_of(look_up(RTLD_DEFAULT, kName)));
  EXPECT_EQ(nullptr, dlerror());
  EXPECT_EQ((Owner{kShim, kName}), owner_of(dlsym(user, kName)));

  // A library of the program with a function of that name.
  void* const own = dlopen(POLYPATH_OWN_COPY, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(nullptr, own) << dlerror();
  EXPECT_EQ((Owner{"libown_copy", kName}), owner_of(dlsym(own, kName)));

  ASSERT_NE(nullptr, dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL));
  EXPECT_EQ((Owner{kShim, kName}), owner_of(dlsym(RTLD_DEFAULT, kName)));
  EXPECT_EQ((Owner{kShim, kName}), owner_of(dlsym(RTLD_NEXT, kName)));
}

}  // namespace
}  // namespace polypath::preload::test
