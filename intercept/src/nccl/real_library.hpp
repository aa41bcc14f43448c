// The NCCL that this process calls, and that comes after this library: found when the first call
// or lookup comes, and the same from then on. Any thread; after the first call without locks.
#pragma once

#include <cuda.h>
#include <link.h>

#include <array>
#include <climits>
#include <cstddef>

#include "polypath/nccl_types.hpp"

namespace polypath::nccl {

// NCCL's ABI, as its documentation gives it: handles are pointers, enumerations are ints
// (polypath/nccl_types.hpp), the id is a struct of 128 bytes that is passed by value.

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

struct CallConfig;  // offload_policy.hpp

/// The functions of the real library that are replaced, and those that this one calls for itself;
/// null where it has none of that name.
struct RealNccl {
  const link_map* object = nullptr;
  void* handle = nullptr;
#define POLYPATH_NCCL_REPLACED(name, arguments) int(*name) arguments = nullptr;
#include "nccl/functions.def"
  int (*ncclGetVersion)(int*) = nullptr;
  int (*ncclCommCount)(void*, int*) = nullptr;
  int (*ncclCommCuDevice)(void*, int*) = nullptr;
  int (*ncclCommUserRank)(void*, int*) = nullptr;
  int version = 0;  ///< as ncclGetVersion gives it: 22809 is 2.28.9

  /// Null where it would be this library's own, as in a program that has both in its scope: a call
  /// of that would come back without end.
  [[nodiscard]] void* find(const char* name) const noexcept;
};

/// What a call by name would have reached without this library: the library that
/// POLYPATH_NCCL_LIBRARY names; that of the calling object; one that is loaded; `may_open`: one
/// that can be opened by its usual names. Null when there is none.
const RealNccl* real_library(const void* caller, bool may_open) noexcept;

/// real_library(), for a program that has looked up a function in `object`: null when that is not
/// the library after this one. Two libraries are reported once.
const RealNccl* real_library_of(const link_map* object) noexcept;

/// The library that was found; null before.
const RealNccl* known_real_library() noexcept;

/// How many other NCCLs were seen, and left alone.
int other_libraries() noexcept;

/// This library itself.
const link_map* own_object() noexcept;

/// NCCL calls functions of its own by name, and then comes here: those calls, and those of this
/// library, go straight back to it. While it lives, this thread's calls are not the program's.
class ReentrancyGuard {
 public:
  ReentrancyGuard() noexcept { ++depth; }
  ~ReentrancyGuard() { --depth; }
  ReentrancyGuard(const ReentrancyGuard&) = delete;
  ReentrancyGuard& operator=(const ReentrancyGuard&) = delete;

  static bool is_inside() noexcept { return depth > 0; }

 private:
  inline static constinit thread_local int depth = 0;
};

}  // namespace polypath::nccl

/// Declares `real`; null, or a library without the function, is the program's mistake.
#define POLYPATH_NCCL_REAL(name)                                                \
  const RealNccl* const real = real_library(__builtin_return_address(0), true); \
  if (real == nullptr || real->name == nullptr) return kInvalidUsage

using polypath::nccl::CallConfig;
using polypath::nccl::Config;
using polypath::nccl::UniqueId;

extern "C" {
#define POLYPATH_NCCL_REPLACED(name, arguments) [[gnu::visibility("default")]] int name arguments;
#include "nccl/functions.def"
}
