// Where a matcher's tables lie: in shared memory of one block, or in memory of the GPU, where
// several kernels work on them one after another. One source for both.
#pragma once

#include <cstdint>

#include "polypath/device/platform.cuh"
#include "polypath/device/scope.cuh"

namespace polypath::device {

/// Tables of a warp or block. Threads see what others wrote after a barrier of the group.
struct in_shared {
  template <typename T>
  POLYPATH_DEVICE static T get(const T* from) {
    return *from;
  }
  template <typename T, typename Value>
  POLYPATH_DEVICE static void put(T* to, Value value) {
    *to = static_cast<T>(value);
  }
#if defined(__CUDACC__)
  POLYPATH_DEVICE static std::uint32_t add(std::uint32_t* at, std::uint32_t value) {
    return atomicAdd(at, value);
  }
  /// Stores `value` where `expected` is; returns what was there.
  POLYPATH_DEVICE static std::uint64_t exchange(std::uint64_t* at, std::uint64_t expected,
                                                std::uint64_t value) {
    return atomicCAS(reinterpret_cast<unsigned long long*>(at), expected, value);
  }
  POLYPATH_DEVICE static std::uint32_t exchange(std::uint32_t* at, std::uint32_t expected,
                                                std::uint32_t value) {
    return atomicCAS(at, expected, value);
  }
  /// What others may be exchanging.
  template <typename T>
  POLYPATH_DEVICE static T peek(const T* from) {
    return *const_cast<const volatile T*>(from);
  }
  /// Returns what was there.
  POLYPATH_DEVICE static std::uint32_t set(std::uint32_t* at, std::uint32_t bits) {
    return atomicOr(at, bits);
  }
  POLYPATH_DEVICE static std::uint32_t swap(std::uint32_t* at, std::uint32_t value) {
    return atomicExch(at, value);
  }
  POLYPATH_DEVICE static void unset(std::uint32_t* at, std::uint32_t bits) { atomicAnd(at, ~bits); }
#else
  // Fibers take turns where they call the machine, and nowhere here.
  static std::uint32_t add(std::uint32_t* at, std::uint32_t value) {
    const std::uint32_t old = *at;
    *at += value;
    return old;
  }
  static std::uint64_t exchange(std::uint64_t* at, std::uint64_t expected, std::uint64_t value) {
    const std::uint64_t old = *at;
    if (old == expected) *at = value;
    return old;
  }
  static std::uint32_t exchange(std::uint32_t* at, std::uint32_t expected, std::uint32_t value) {
    const std::uint32_t old = *at;
    if (old == expected) *at = value;
    return old;
  }
  template <typename T>
  static T peek(const T* from) {
    return *from;
  }
  static std::uint32_t set(std::uint32_t* at, std::uint32_t bits) {
    const std::uint32_t old = *at;
    *at |= bits;
    return old;
  }
  static std::uint32_t swap(std::uint32_t* at, std::uint32_t value) {
    const std::uint32_t old = *at;
    *at = value;
    return old;
  }
  static void unset(std::uint32_t* at, std::uint32_t bits) { *at &= ~bits; }
#endif
};

/// Tables of the whole GPU. Threads see what others wrote in an earlier kernel, and those of a warp
/// also after its barrier.
struct in_global {
  using index = std::uint32_t;

  template <typename T>
  POLYPATH_DEVICE static T get(const T* from) {
    return load(from);
  }
  template <typename T, typename Value>
  POLYPATH_DEVICE static void put(T* to, Value value) {
    store(to, static_cast<T>(value));
  }
  POLYPATH_DEVICE static std::uint32_t add(std::uint32_t* at, std::uint32_t value) {
    return fetch_add<device_scope>(at, value);
  }
  POLYPATH_DEVICE static std::uint64_t exchange(std::uint64_t* at, std::uint64_t expected,
                                                std::uint64_t value) {
    return compare_exchange<device_scope>(at, expected, value);
  }
  POLYPATH_DEVICE static std::uint64_t peek(const std::uint64_t* from) {
    return load_relaxed<device_scope>(from);
  }
};

namespace detail {

/// The sum of the values of lanes 0 to this one.
template <typename T>
POLYPATH_DEVICE T sum_up_to_me(T value) {
  const unsigned lane = rank_in_warp();
  POLYPATH_UNROLL
  for (unsigned step = 1; step < kWarp; step *= 2) {
    const T before = warp_shuffle(value, lane >= step ? lane - step : lane);
    if (lane >= step) value = static_cast<T>(value + before);
  }
  return value;
}

}  // namespace detail
}  // namespace polypath::device
