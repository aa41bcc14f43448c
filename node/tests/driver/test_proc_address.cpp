// What cuGetProcAddress answers: the driver of GPUs and the simulated one alike
// (docs/cuda-notes.md).
#include <cuda.h>
#include <cudaTypedefs.h>
#include <gtest/gtest.h>

#include <ostream>

#include "driver/library.hpp"

namespace polypath {
namespace {

constexpr cuuint64_t kDefault = CU_GET_PROC_ADDRESS_DEFAULT;
constexpr cuuint64_t kLegacy = CU_GET_PROC_ADDRESS_LEGACY_STREAM;
constexpr cuuint64_t kPerThread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
constexpr cuuint64_t kUnknownFlag = 4;
constexpr int kNewest = -1;

struct Answer {
  CUresult result;
  void* function;
  int status;

  bool operator==(const Answer&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const Answer& answer) {
    return out << answer.result << ", function " << answer.function << ", status " << answer.status;
  }
};

/// What a result holds that was not written.
int unwritten = 0;
constexpr int kUnwrittenStatus = 3;  // no answer, but one that the type can hold

constexpr Answer kNotFound{CUDA_SUCCESS, nullptr, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND};
constexpr Answer kTooOld{CUDA_SUCCESS, nullptr, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT};
const Answer kInvalid{CUDA_ERROR_INVALID_VALUE, &unwritten, kUnwrittenStatus};
/// The answer of the function's first version for names that it does not find; it has no status.
const Answer kFirstNotFound{CUDA_ERROR_NOT_FOUND, &unwritten, kUnwrittenStatus};

class ProcAddress : public testing::Test {
 protected:
  void SetUp() override {
    library = open_library("libcuda.so.1", nullptr);
    if (library == nullptr) GTEST_SKIP() << "no CUDA driver here";
    first = find_symbol<PFN_cuGetProcAddress_v11030>(library, "cuGetProcAddress");
    second = find_symbol<PFN_cuGetProcAddress_v12000>(library, "cuGetProcAddress_v2");
    if (first == nullptr || second == nullptr) GTEST_SKIP() << "a driver from before CUDA 12";
    const auto init = find_symbol<decltype(&cuInit)>(library, "cuInit");
    if (init(0) != CUDA_SUCCESS) GTEST_SKIP() << "no GPU here";
    const auto get_version =
        find_symbol<decltype(&cuDriverGetVersion)>(library, "cuDriverGetVersion");
    ASSERT_EQ(CUDA_SUCCESS, get_version(&driver_version));
  }

  Answer ask_first(const char* name, int version, cuuint64_t flags) const {
    Answer answer{CUDA_SUCCESS, &unwritten, kUnwrittenStatus};
    answer.result = first(name, &answer.function, version, flags);
    return answer;
  }
  Answer ask(const char* name, int version, cuuint64_t flags) const {
    Answer answer{CUDA_SUCCESS, &unwritten, kUnwrittenStatus};
    auto status = CUdriverProcAddressQueryResult(kUnwrittenStatus);
    answer.result = second(name, &answer.function, version, flags, &status);
    answer.status = status;
    return answer;
  }
  /// Without a place for the status.
  Answer ask_without_status(const char* name, int version, cuuint64_t flags) const {
    Answer answer{CUDA_SUCCESS, &unwritten, kUnwrittenStatus};
    answer.result = second(name, &answer.function, version, flags, nullptr);
    return answer;
  }

  /// All three give `symbol`, as it is exported.
  void expect_found(const char* symbol, const char* name, int version, cuuint64_t flags) const {
    void* const exported = dlsym(library, symbol);
    ASSERT_NE(nullptr, exported) << symbol;
    EXPECT_EQ((Answer{CUDA_SUCCESS, exported, CU_GET_PROC_ADDRESS_SUCCESS}),
              ask(name, version, flags))
        << symbol;
    const Answer without_status{CUDA_SUCCESS, exported, kUnwrittenStatus};
    EXPECT_EQ(without_status, ask_without_status(name, version, flags)) << symbol;
    EXPECT_EQ(without_status, ask_first(name, version, flags)) << symbol;
  }
  /// None of the three gives a function, each in its own way.
  void expect_none(const Answer& why, const char* name, int version, cuuint64_t flags) const {
    EXPECT_EQ(why, ask(name, version, flags)) << name << ' ' << version << ' ' << flags;
    EXPECT_EQ((Answer{CUDA_SUCCESS, nullptr, kUnwrittenStatus}),
              ask_without_status(name, version, flags))
        << name << ' ' << version << ' ' << flags;
    EXPECT_EQ(kFirstNotFound, ask_first(name, version, flags))
        << name << ' ' << version << ' ' << flags;
  }

  void* library = nullptr;
  PFN_cuGetProcAddress_v11030 first = nullptr;
  PFN_cuGetProcAddress_v12000 second = nullptr;
  int driver_version = 0;
};

TEST_F(ProcAddress, EqualsTheExportedSymbol) {
  for (const cuuint64_t flags : {kDefault, kLegacy}) {
    expect_found("cuMemAlloc_v2", "cuMemAlloc", 3020, flags);
    expect_found("cuMemcpyAsync", "cuMemcpyAsync", 4000, flags);
    expect_found("cuMemcpyDtoDAsync_v2", "cuMemcpyDtoDAsync", 12000, flags);
    expect_found("cuMemcpy", "cuMemcpy", 12000, flags);
  }
}

TEST_F(ProcAddress, VersionSelectsItsNewestForm) {
  expect_found("cuGetProcAddress", "cuGetProcAddress", 11030, kDefault);
  expect_found("cuGetProcAddress", "cuGetProcAddress", 11080, kDefault);
  expect_found("cuGetProcAddress_v2", "cuGetProcAddress", 12000, kDefault);
  expect_found("cuCtxSynchronize", "cuCtxSynchronize", 12080, kDefault);
  if (driver_version < 13000) GTEST_SKIP() << "a driver from before CUDA 13";
  expect_found("cuCtxSynchronize_v2", "cuCtxSynchronize", 13000, kDefault);
  expect_found("cuMemcpyBatchAsync", "cuMemcpyBatchAsync", 12080, kDefault);
  expect_found("cuMemcpyBatchAsync_v2", "cuMemcpyBatchAsync", 13000, kDefault);
}

TEST_F(ProcAddress, VersionMinusOne_IsTheDriversVersion) {
  for (const cuuint64_t flags : {kDefault, kPerThread}) {
    for (const char* name : {"cuMemcpyDtoDAsync", "cuMemcpyBatchAsync", "cuCtxSynchronize"}) {
      EXPECT_EQ(ask(name, driver_version, flags), ask(name, kNewest, flags)) << name;
      EXPECT_EQ(CUDA_SUCCESS, ask(name, kNewest, flags).result) << name;
    }
  }
}

TEST_F(ProcAddress, PerThreadFlag_WinsOverLegacy) {
  for (const cuuint64_t flags : {kPerThread, kPerThread | kLegacy}) {
    expect_found("cuMemcpyAsync_ptsz", "cuMemcpyAsync", 7000, flags);
    expect_found("cuMemcpyDtoDAsync_v2_ptsz", "cuMemcpyDtoDAsync", 7000, flags);
    expect_found("cuMemcpy_ptds", "cuMemcpy", 12000, flags);
    expect_found("cuMemAlloc_v2", "cuMemAlloc", 3020, flags);  // has no per-thread form
  }
}

TEST_F(ProcAddress, PerThreadIsNeverTheLegacyOneInstead) {
  for (const cuuint64_t flags : {kPerThread, kPerThread | kLegacy}) {
    expect_none(kTooOld, "cuMemcpyAsync", 4000, flags);
    expect_none(kTooOld, "cuMemcpyAsync", 6050, flags);
    expect_none(kTooOld, "cuMemcpyDtoDAsync", 3020, flags);
    expect_none(kTooOld, "cuMemcpy", 4000, flags);
  }
}

TEST_F(ProcAddress, DoesNotExistBeforeTheFunction) {
  for (const cuuint64_t flags : {kDefault, kPerThread}) {
    for (const int version : {0, 1000}) expect_none(kTooOld, "cuMemAlloc", version, flags);
    expect_none(kTooOld, "cuGetProcAddress", 11010, flags);
    expect_none(kTooOld, "cuMemcpyBatchAsync", 12050, flags);
  }
}

TEST_F(ProcAddress, OtherNames_AreNotFound) {
  for (const char* name :
       {"cuNoSuchFunction", "", "nvmlInit", "cuMemAlloc_v2", "cuMemcpyDtoDAsync_v2",
        "cuMemcpyDtoDAsync_v2_ptsz", "cuMemcpyAsync_ptsz", "cuGetProcAddress_v2"})
    for (const int version : {kNewest, 0, 12000}) expect_none(kNotFound, name, version, kDefault);
}

TEST_F(ProcAddress, VersionAboveTheDrivers_IsInvalid) {
  for (const char* name : {"cuMemAlloc", "cuMemcpyAsync", "cuNoSuchFunction"})
    for (const cuuint64_t flags : {kDefault, kPerThread})
      EXPECT_EQ(kInvalid, ask(name, driver_version + 10, flags)) << name;
}

TEST_F(ProcAddress, WithUnknownFlagsIsInvalid) {
  for (const char* name : {"cuMemAlloc", "cuMemcpyAsync", "cuNoSuchFunction"})
    for (const int version : {kNewest, 7000})
      EXPECT_EQ(kInvalid, ask(name, version, kUnknownFlag)) << name;
  EXPECT_EQ(kInvalid, ask_first("cuMemcpyAsync", 7000, kUnknownFlag));
}

}  // namespace
}  // namespace polypath
