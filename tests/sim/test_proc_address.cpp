// cuGetProcAddress: every exported driver function by its name without suffix, from the CUDA version on
// that brought it.
#include <cudaTypedefs.h>

#include <bit>

#include "fixture.hpp"

namespace polypath::sim::test {
namespace {

struct Found {
  CUresult result;
  void* function;
  CUdriverProcAddressQueryResult status;
};

Found find(const char* name, int version, cuuint64_t flags = CU_GET_PROC_ADDRESS_DEFAULT) {
  Found found{CUDA_SUCCESS, &found, CU_GET_PROC_ADDRESS_SUCCESS};
  found.result = cuGetProcAddress(name, &found.function, version, flags, &found.status);
  return found;
}

void* address(auto* function) { return std::bit_cast<void*>(function); }

TEST(ProcAddress, GivesTheFunctionThatTheLibraryExports) {
  const Found found = find("cuMemAlloc", 3020);
  EXPECT_CUDA(CUDA_SUCCESS, found.result);
  EXPECT_EQ(CU_GET_PROC_ADDRESS_SUCCESS, found.status);
  EXPECT_EQ(address(&cuMemAlloc_v2), found.function);
}

TEST(ProcAddress, GivesTheNewestThatTheVersionHas) {
  const void* const v2 = find("cuCtxCreate", 11030).function;
  const void* const v3 = find("cuCtxCreate", 11040).function;
  EXPECT_EQ(v2, find("cuCtxCreate", 3020).function);
  EXPECT_NE(v2, v3);
  EXPECT_EQ(v3, find("cuCtxCreate", 12040).function);
  EXPECT_EQ(address(&cuCtxCreate_v4), find("cuCtxCreate", 13000).function);
}

TEST(ProcAddress, AnOlderVersionIsNotSufficient) {
  const Found found = find("cuStreamGetId", 11080);
  EXPECT_CUDA(CUDA_ERROR_NOT_FOUND, found.result);
  EXPECT_EQ(CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT, found.status);
  EXPECT_EQ(nullptr, found.function);
}

TEST(ProcAddress, UnknownNamesAndNamesWithSuffixesAreNotFound) {
  for (const char* name : {"cuNoSuchFunction", "", "cuMemAlloc_v2", "nvmlInit"}) {
    const Found found = find(name, 13000);
    EXPECT_CUDA(CUDA_ERROR_NOT_FOUND, found.result) << name;
    EXPECT_EQ(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, found.status) << name;
    EXPECT_EQ(nullptr, found.function) << name;
  }
}

TEST(ProcAddress, GivesItselfInBothVersions) {
  EXPECT_EQ(address(&cuGetProcAddress_v2), find("cuGetProcAddress", 12000).function);
  const auto older =
      std::bit_cast<PFN_cuGetProcAddress_v11030>(find("cuGetProcAddress", 11030).function);
  ASSERT_NE(address(&cuGetProcAddress_v2), address(older));
  void* function = nullptr;
  EXPECT_CUDA(CUDA_SUCCESS, older("cuMemAlloc", &function, 3020, CU_GET_PROC_ADDRESS_DEFAULT));
  EXPECT_EQ(address(&cuMemAlloc_v2), function);
}

TEST(ProcAddress, TheStatusIsOptional) {
  void* function = nullptr;
  EXPECT_CUDA(CUDA_SUCCESS, cuGetProcAddress("cuMemAlloc", &function, 3020, 0, nullptr));
  EXPECT_CUDA(CUDA_ERROR_NOT_FOUND, cuGetProcAddress("cuMemAlloc", &function, 2000, 0, nullptr));
}

TEST(ProcAddress, FlagsThatExcludeEachOtherOrDoNotExistAreInvalid) {
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, find("cuMemAlloc", 13000, 3).result);
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, find("cuMemAlloc", 13000, 4).result);
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, find(nullptr, 13000).result);
  EXPECT_CUDA(CUDA_ERROR_INVALID_VALUE, cuGetProcAddress("cuMemAlloc", nullptr, 13000, 0, nullptr));
}

TEST(ProcAddress, WhatHasNoVariantForThreadsIsTheSameForThem) {
  const cuuint64_t per_thread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  EXPECT_EQ(address(&cuMemAlloc_v2), find("cuMemAlloc", 13000, per_thread).function);
}

}  // namespace
}  // namespace polypath::sim::test
