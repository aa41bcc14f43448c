// NCCL as a program has it: by name, or opened at run time and looked up (TEST_NCCL names the
// library). And the stand-in's own functions, past all that stands in between.
#pragma once

#include <cuda.h>
#include <dlfcn.h>

#include <array>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace polypath::test {

struct NcclId {
  std::array<char, 128> bytes;
};
/// ncclConfig_t, as far as programs here set it.
struct NcclConfig {
  std::size_t size = sizeof(NcclConfig);
  unsigned magic = 0xCAFEBEEF;
  unsigned version = 22809;
  int blocking = INT_MIN;
  std::array<char, 128> rest{};
};

/// ncclCollConfig_t of 2.32.
struct NcclCallConfig {
  std::size_t size = sizeof(NcclCallConfig);
  unsigned magic = 0xCAFEBEEF;
  unsigned version = 23203;
  const void* extensions = nullptr;
  int min_ctas = INT_MIN;
  int max_ctas = INT_MIN;
  int nvls_ctas = INT_MIN;
  int cga_cluster_size = INT_MIN;
  const char* algorithms = nullptr;
  int forces_algorithms = 1;
  int cta_policy = INT_MIN;
  std::uint64_t profiler_tag = 0;
  CUevent launch_completion_event = nullptr;
};
using CallConfig = const NcclCallConfig*;

// What every version has, and what some have.
#define NCCL_TEST_FUNCTIONS(X)                                                            \
  X(int, ncclGetVersion, (int*))                                                          \
  X(const char*, ncclGetErrorString, (int))                                               \
  X(int, ncclGetUniqueId, (NcclId*))                                                      \
  X(int, ncclCommInitRank, (void**, int, NcclId, int))                                    \
  X(int, ncclCommInitRankConfig, (void**, int, NcclId, int, NcclConfig*))                 \
  X(int, ncclCommInitAll, (void**, int, const int*))                                      \
  X(int, ncclCommSplit, (void*, int, int, void**, NcclConfig*))                           \
  X(int, ncclCommFinalize, (void*))                                                       \
  X(int, ncclCommDestroy, (void*))                                                        \
  X(int, ncclCommAbort, (void*))                                                          \
  X(int, ncclCommGetAsyncError, (void*, int*))                                            \
  X(int, ncclCommCount, (void*, int*))                                                    \
  X(int, ncclCommUserRank, (void*, int*))                                                 \
  X(int, ncclCommRegister, (void*, void*, std::size_t, void**))                           \
  X(int, ncclCommDeregister, (void*, void*))                                              \
  X(int, ncclMemAlloc, (void**, std::size_t))                                             \
  X(int, ncclMemFree, (void*))                                                            \
  X(int, ncclGroupStart, ())                                                              \
  X(int, ncclGroupEnd, ())                                                                \
  X(int, ncclAllReduce, (const void*, void*, std::size_t, int, int, void*, CUstream))     \
  X(int, ncclReduceScatter, (const void*, void*, std::size_t, int, int, void*, CUstream)) \
  X(int, ncclReduce, (const void*, void*, std::size_t, int, int, int, void*, CUstream))   \
  X(int, ncclAllGather, (const void*, void*, std::size_t, int, void*, CUstream))          \
  X(int, ncclBroadcast, (const void*, void*, std::size_t, int, int, void*, CUstream))     \
  X(int, ncclBcast, (void*, std::size_t, int, int, void*, CUstream))                      \
  X(int, ncclSend, (const void*, std::size_t, int, int, void*, CUstream))                 \
  X(int, ncclRecv, (void*, std::size_t, int, int, void*, CUstream))                       \
  X(int, ncclRedOpCreatePreMulSum, (int*, void*, int, int, void*))
#define NCCL_TEST_NEW_FUNCTIONS(X)                                                                 \
  X(int, ncclAlltoAll, (const void*, void*, std::size_t, int, void*, CUstream))                    \
  X(int, ncclCommInitRankScalable, (void**, int, int, int, NcclId*, NcclConfig*))                  \
  X(int, ncclCommShrink, (void*, int*, int, void**, NcclConfig*, int))                             \
  X(int, ncclCommRevoke, (void*, int))                                                             \
  X(int, ncclAllReduceConfig,                                                                      \
    (const void*, void*, std::size_t, int, int, void*, CUstream, CallConfig))                      \
  X(int, ncclReduceScatterConfig,                                                                  \
    (const void*, void*, std::size_t, int, int, void*, CUstream, CallConfig))                      \
  X(int, ncclReduceConfig,                                                                         \
    (const void*, void*, std::size_t, int, int, int, void*, CUstream, CallConfig))                 \
  X(int, ncclAllGatherConfig, (const void*, void*, std::size_t, int, void*, CUstream, CallConfig)) \
  X(int, ncclBroadcastConfig,                                                                      \
    (const void*, void*, std::size_t, int, int, void*, CUstream, CallConfig))                      \
  X(int, ncclAlltoAllConfig, (const void*, void*, std::size_t, int, void*, CUstream, CallConfig))  \
  X(int, ncclGroupSimulateEnd, (void*))                                                            \
  X(double, ncclOfTheFuture, (int, double, NcclId, const char*, float, int, int, int, int))

#ifdef NCCL_BY_NAME
extern "C" {
#define X(result, name, arguments) result name arguments;
NCCL_TEST_FUNCTIONS(X)
NCCL_TEST_NEW_FUNCTIONS(X)
#undef X
}
#endif

struct NcclApi {
#define X(result, name, arguments) result(*name) arguments = nullptr;
  NCCL_TEST_FUNCTIONS(X)
  NCCL_TEST_NEW_FUNCTIONS(X)
#undef X
  // Functions of the stand-in.
  int (*calls)(const char*) = nullptr;
  int (*init_rank_past_all)(void**, int, NcclId, int) = nullptr;
  /// Functions of libpolypath_nccl; null where it is not in between.
  std::size_t (*report)(char*, std::size_t) = nullptr;

  NcclApi() {
#ifdef NCCL_BY_NAME
#define X(result, name, arguments) this->name = &test::name;
    NCCL_TEST_FUNCTIONS(X)
    NCCL_TEST_NEW_FUNCTIONS(X)
#undef X
    void* const real = RTLD_DEFAULT;
    void* const between = RTLD_DEFAULT;
#else
    void* const library = dlopen(std::getenv("TEST_NCCL"), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw std::runtime_error(dlerror());
#define X(result, name, arguments) \
  this->name = reinterpret_cast<result(*) arguments>(dlsym(library, #name));
    NCCL_TEST_FUNCTIONS(X)
    NCCL_TEST_NEW_FUNCTIONS(X)
#undef X
    int version = 0;
    ncclGetVersion(&version);  // it opens the library after it
    void* const real = dlopen(std::getenv("TEST_STANDIN"), RTLD_NOW | RTLD_NOLOAD);
    void* const between =
        dlsym(RTLD_DEFAULT, "polypath_nccl_report") != nullptr ? RTLD_DEFAULT : library;
#endif
    calls = reinterpret_cast<decltype(calls)>(dlsym(real, "nccl_standin_calls"));
    init_rank_past_all =
        reinterpret_cast<decltype(init_rank_past_all)>(dlsym(real, "nccl_standin_init_rank"));
    report = reinterpret_cast<decltype(report)>(dlsym(between, "polypath_nccl_report"));
  }

  static const NcclApi& get() {
    static const NcclApi api;
    return api;
  }
};

}  // namespace polypath::test
