// NCCL's ABI, as its documentation gives it: handles are pointers, enumerations are ints, the id is
// a struct of 128 bytes that is passed by value.
#pragma once

#include <cuda.h>

#include <array>
#include <climits>
#include <cstddef>
#include <cstdint>

namespace polypath::nccl {

struct UniqueId {
  std::array<char, 128> bytes;
};

/// The beginning of ncclConfig_t, the same in all versions.
struct Config {
  std::size_t size;
  unsigned magic;
  unsigned version;
  int blocking;
};
/// A field of ncclConfig_t or ncclCollConfig_t that the program leaves to NCCL.
inline constexpr int kUndefined = INT_MIN;

/// ncclCollConfig_t, of one call: 2.31 and later.
struct CallConfig {
  static constexpr unsigned kMagic = 0xCAFEBEEF;

  std::size_t size;  ///< of the program's version
  unsigned magic;
  unsigned version;
  const void* extensions;  ///< of other vendors' libraries: NCCL ignores them
  int min_ctas;
  int max_ctas;
  int nvls_ctas;
  int cga_cluster_size;
  const char* algorithms;  ///< null or empty: any
  int forces_algorithms;
  int cta_policy;
  std::uint64_t profiler_tag;       ///< for profilers alone
  CUevent launch_completion_event;  ///< 2.32 and later; null: none
};

/// ncclResult_t.
inline constexpr int kSuccess = 0;
inline constexpr int kUnhandledCudaError = 1;
inline constexpr int kSystemError = 2;
inline constexpr int kInternalError = 3;
inline constexpr int kInvalidArgument = 4;
inline constexpr int kInvalidUsage = 5;
inline constexpr int kRemoteError = 6;
inline constexpr int kInProgress = 7;

/// ncclDataType_t.
inline constexpr int kInt8 = 0;
/// ncclRedOp_t: those beyond ncclAvg are the program's own.
inline constexpr int kSum = 0;
inline constexpr int kProduct = 1;
inline constexpr int kNcclMax = 2;
inline constexpr int kNcclMin = 3;
inline constexpr int kAvg = 4;

}  // namespace polypath::nccl
