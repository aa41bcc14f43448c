// cuGetProcAddress where it is this driver's own affair; node/tests/driver/test_proc_address.cpp
// has the rules that every driver keeps.
#include <bit>

#include "fixture.hpp"

namespace polypath::sim::test {
namespace {

void* address(auto* function) { return std::bit_cast<void*>(function); }

TEST(ProcAddress, GivesTheNewestThatTheVersionHas) {
  const auto find = [](int version) {
    void* function = nullptr;
    EXPECT_CUDA(CUDA_SUCCESS, cuGetProcAddress("cuCtxCreate", &function, version, 0, nullptr));
    return function;
  };
  const void* const v2 = find(11030);
  const void* const v3 = find(11040);
  ASSERT_NE(nullptr, v2);
  EXPECT_EQ(v2, find(3020));
  EXPECT_NE(v2, v3);
  EXPECT_EQ(v3, find(12040));
  EXPECT_EQ(address(&cuCtxCreate_v4), find(13000));
}

// Without a name a GPU's driver crashes; without a place for the function it was not tried.
TEST(ProcAddress, NeedsANameAndAPlaceForTheFunction) {
  void* function = nullptr;
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGetProcAddress(nullptr, &function, 13000, 0, nullptr));
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGetProcAddress("cuMemAlloc", nullptr, 13000, 0, nullptr));
}

}  // namespace
}  // namespace polypath::sim::test
