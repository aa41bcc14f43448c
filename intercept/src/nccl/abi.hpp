// NCCL's ABI, as its documentation gives it: handles are pointers, enumerations are ints
// (polypath/nccl_types.hpp), the id is a struct of 128 bytes that is passed by value.
#pragma once

#include <array>
#include <climits>
#include <cstddef>

#include "polypath/nccl_types.hpp"

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
/// A field of ncclConfig_t that the program leaves to NCCL.
inline constexpr int kUndefined = INT_MIN;

/// ncclResult_t.
inline constexpr int kSuccess = 0;
inline constexpr int kUnhandledCudaError = 1;
inline constexpr int kSystemError = 2;
inline constexpr int kInternalError = 3;
inline constexpr int kInvalidArgument = 4;
inline constexpr int kInvalidUsage = 5;
inline constexpr int kRemoteError = 6;
inline constexpr int kInProgress = 7;

}  // namespace polypath::nccl
