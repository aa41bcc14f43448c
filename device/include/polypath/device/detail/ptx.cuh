// Device side of platform.cuh, which says what each function means: one PTX instruction or
// intrinsic each.
#pragma once

#include <cstddef>
#include <cstdint>

#define POLYPATH_DEVICE __device__ __forceinline__
#define POLYPATH_DEVICE_NOINLINE inline __device__ __noinline__

namespace polypath::device {

POLYPATH_DEVICE unsigned thread_index() { return threadIdx.x; }
POLYPATH_DEVICE unsigned block_size() { return blockDim.x; }
POLYPATH_DEVICE unsigned block_index() { return blockIdx.x; }
POLYPATH_DEVICE unsigned grid_size() { return gridDim.x; }

template <typename T>
POLYPATH_DEVICE T& as_shared(T& in_shared_memory) {
  auto at = static_cast<unsigned>(__cvta_generic_to_shared(&in_shared_memory));
  asm("" : "+r"(at));
  return *static_cast<T*>(__cvta_shared_to_generic(at));
}
template <typename T>
POLYPATH_DEVICE T opaque(T value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  if constexpr (sizeof(T) == 8)
    asm volatile("" : "+l"(value));
  else
    asm volatile("" : "+r"(value));
  return value;
}
template <typename T>
POLYPATH_DEVICE T* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char polypath_dynamic_shared[];
  return &as_shared(*reinterpret_cast<T*>(polypath_dynamic_shared));
}

POLYPATH_DEVICE unsigned rank_in_block() {
  return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}
POLYPATH_DEVICE unsigned threads_of_block() { return blockDim.x * blockDim.y * blockDim.z; }
POLYPATH_DEVICE unsigned rank_in_warp() {
  unsigned lane;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

POLYPATH_DEVICE void block_sync() { __syncthreads(); }
POLYPATH_DEVICE bool block_any(bool value) { return __syncthreads_or(value ? 1 : 0) != 0; }
POLYPATH_DEVICE void barrier_sync(unsigned id, unsigned threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
POLYPATH_DEVICE bool barrier_any(unsigned id, unsigned threads, bool value) {
  unsigned result;
  asm volatile(
      "{ .reg .pred p, q; setp.ne.u32 p, %1, 0; bar.red.or.pred q, %2, %3, p;"
      " selp.u32 %0, 1, 0, q; }"
      : "=r"(result)
      : "r"(static_cast<unsigned>(value)), "r"(id), "r"(threads)
      : "memory");
  return result != 0;
}

POLYPATH_DEVICE void grid_dependency_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

POLYPATH_DEVICE void warp_sync() { __syncwarp(); }
POLYPATH_DEVICE unsigned warp_ballot(bool value) { return __ballot_sync(~0U, value); }
POLYPATH_DEVICE bool warp_any(bool value) { return __any_sync(~0U, value) != 0; }
POLYPATH_DEVICE bool warp_all(bool value) { return __all_sync(~0U, value) != 0; }
POLYPATH_DEVICE unsigned countr_one(unsigned bits) {
  return bits == ~0U ? 32 : static_cast<unsigned>(__ffs(static_cast<int>(~bits))) - 1;
}
POLYPATH_DEVICE unsigned popcount(unsigned bits) {
  return static_cast<unsigned>(__popc(static_cast<int>(bits)));
}
POLYPATH_DEVICE unsigned countl_zero(unsigned bits) {
  return static_cast<unsigned>(__clz(static_cast<int>(bits)));
}
template <typename T>
POLYPATH_DEVICE T warp_shuffle(T value, unsigned lane) {
  return __shfl_sync(~0U, value, static_cast<int>(lane));
}
template <typename T>
POLYPATH_DEVICE T warp_shuffle_xor(T value, unsigned mask) {
  return __shfl_xor_sync(~0U, value, static_cast<int>(mask));
}

namespace detail {

struct alignas(16) Bits16 {
  std::uint64_t low, high;
};
template <typename T>
struct same_of {
  using type = T;
};
template <typename T>
using Same = typename same_of<T>::type;  // T is deduced from the other argument

template <std::size_t kBytes>
struct uint_of_size;
template <>
struct uint_of_size<1> {
  using type = std::uint8_t;
};
template <>
struct uint_of_size<2> {
  using type = std::uint16_t;
};
template <>
struct uint_of_size<4> {
  using type = std::uint32_t;
};
template <>
struct uint_of_size<8> {
  using type = std::uint64_t;
};
template <>
struct uint_of_size<16> {
  using type = Bits16;
};

/// By value: of what lies in memory memcpy would be a load for each byte.
template <typename To, typename From>
POLYPATH_DEVICE To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof(to));
  return to;
}

// Overloads for the five widths. A register may be wider than what ld and st move. All are
// volatile: others the compiler takes out of the branch that allows them.
#define POLYPATH_LOADS(name, instruction, clobber)                               \
  POLYPATH_DEVICE std::uint8_t name(const std::uint8_t* from) {                  \
    unsigned value;                                                              \
    asm volatile(instruction ".u8 %0, [%1];" : "=r"(value) : "l"(from)clobber);  \
    return static_cast<std::uint8_t>(value);                                     \
  }                                                                              \
  POLYPATH_DEVICE std::uint16_t name(const std::uint16_t* from) {                \
    std::uint16_t value;                                                         \
    asm volatile(instruction ".u16 %0, [%1];" : "=h"(value) : "l"(from)clobber); \
    return value;                                                                \
  }                                                                              \
  POLYPATH_DEVICE std::uint32_t name(const std::uint32_t* from) {                \
    std::uint32_t value;                                                         \
    asm volatile(instruction ".u32 %0, [%1];" : "=r"(value) : "l"(from)clobber); \
    return value;                                                                \
  }                                                                              \
  POLYPATH_DEVICE std::uint64_t name(const std::uint64_t* from) {                \
    std::uint64_t value;                                                         \
    asm volatile(instruction ".u64 %0, [%1];" : "=l"(value) : "l"(from)clobber); \
    return value;                                                                \
  }                                                                              \
  POLYPATH_DEVICE Bits16 name(const Bits16* from) {                              \
    Bits16 value;                                                                \
    asm volatile(instruction ".v2.u64 {%0, %1}, [%2];"                           \
                 : "=l"(value.low), "=l"(value.high)                             \
                 : "l"(from)clobber);                                            \
    return value;                                                                \
  }

#define POLYPATH_STORES(name, instruction)                                                        \
  POLYPATH_DEVICE void name(std::uint8_t* to, std::uint8_t value) {                               \
    asm volatile(instruction ".u8 [%0], %1;" ::"l"(to), "r"(static_cast<unsigned>(value))         \
                 : "memory");                                                                     \
  }                                                                                               \
  POLYPATH_DEVICE void name(std::uint16_t* to, std::uint16_t value) {                             \
    asm volatile(instruction ".u16 [%0], %1;" ::"l"(to), "h"(value) : "memory");                  \
  }                                                                                               \
  POLYPATH_DEVICE void name(std::uint32_t* to, std::uint32_t value) {                             \
    asm volatile(instruction ".u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");                  \
  }                                                                                               \
  POLYPATH_DEVICE void name(std::uint64_t* to, std::uint64_t value) {                             \
    asm volatile(instruction ".u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");                  \
  }                                                                                               \
  POLYPATH_DEVICE void name(Bits16* to, Bits16 value) {                                           \
    asm volatile(instruction ".v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(value.low), "l"(value.high) \
                 : "memory");                                                                     \
  }

#define POLYPATH_CLOBBERS : "memory"
POLYPATH_LOADS(ld_constant, "ld.global.nc.L1::no_allocate", )
POLYPATH_LOADS(ld_streaming, "ld.global.L1::no_allocate", POLYPATH_CLOBBERS)
POLYPATH_LOADS(ld_volatile, "ld.volatile.global", POLYPATH_CLOBBERS)
POLYPATH_LOADS(ld_relaxed, "ld.relaxed.sys.global", POLYPATH_CLOBBERS)
POLYPATH_STORES(st_streaming, "st.global.L1::no_allocate")
POLYPATH_STORES(st_volatile, "st.volatile.global")
POLYPATH_STORES(st_relaxed, "st.relaxed.sys.global")
#undef POLYPATH_CLOBBERS
#undef POLYPATH_LOADS
#undef POLYPATH_STORES

template <typename T>
using Bits = typename uint_of_size<sizeof(T)>::type;
template <typename T>
POLYPATH_DEVICE const Bits<T>* bits(const T* at) {
  return reinterpret_cast<const Bits<T>*>(at);
}
template <typename T>
POLYPATH_DEVICE Bits<T>* bits(T* at) {
  return reinterpret_cast<Bits<T>*>(at);
}

}  // namespace detail

template <typename T>
POLYPATH_DEVICE T load(const T* from) {
  const detail::Bits<T> value = *detail::bits(from);  // copied in place it would be loaded bytewise
  return detail::bit_cast<T>(value);
}
template <typename T>
POLYPATH_DEVICE T load_constant(const T* from) {
  return detail::bit_cast<T>(detail::ld_constant(detail::bits(from)));
}
template <typename T>
POLYPATH_DEVICE T load_streaming(const T* from) {
  return detail::bit_cast<T>(detail::ld_streaming(detail::bits(from)));
}
template <typename T>
POLYPATH_DEVICE T load_volatile(const T* from) {
  return detail::bit_cast<T>(detail::ld_volatile(detail::bits(from)));
}
template <typename T>
POLYPATH_DEVICE T load_relaxed(const T* from) {
  return detail::bit_cast<T>(detail::ld_relaxed(detail::bits(from)));
}

template <typename T>
POLYPATH_DEVICE void store(T* to, detail::Same<T> value) {
  *detail::bits(to) = detail::bit_cast<detail::Bits<T>>(value);
}
template <typename T>
POLYPATH_DEVICE void store_streaming(T* to, detail::Same<T> value) {
  detail::st_streaming(detail::bits(to), detail::bit_cast<detail::Bits<T>>(value));
}
template <typename T>
POLYPATH_DEVICE void store_volatile(T* to, detail::Same<T> value) {
  detail::st_volatile(detail::bits(to), detail::bit_cast<detail::Bits<T>>(value));
}
template <typename T>
POLYPATH_DEVICE void store_relaxed(T* to, detail::Same<T> value) {
  detail::st_relaxed(detail::bits(to), detail::bit_cast<detail::Bits<T>>(value));
}

#define POLYPATH_SYNCHRONISING(Type, suffix, constraint)                                        \
  POLYPATH_DEVICE Type load_acquire(const Type* from) {                                         \
    Type value;                                                                                 \
    asm volatile("ld.acquire.sys.global." suffix " %0, [%1];"                                   \
                 : "=" constraint(value)                                                        \
                 : "l"(from)                                                                    \
                 : "memory");                                                                   \
    return value;                                                                               \
  }                                                                                             \
  POLYPATH_DEVICE void store_release(Type* to, Type value) {                                    \
    asm volatile("st.release.sys.global." suffix " [%0], %1;" ::"l"(to), constraint(value)      \
                 : "memory");                                                                   \
  }                                                                                             \
  POLYPATH_DEVICE void red_add_relaxed(Type* to, Type value) {                                  \
    asm volatile("red.relaxed.sys.global.add." suffix " [%0], %1;" ::"l"(to), constraint(value) \
                 : "memory");                                                                   \
  }                                                                                             \
  POLYPATH_DEVICE void red_add_release(Type* to, Type value) {                                  \
    asm volatile("red.release.sys.global.add." suffix " [%0], %1;" ::"l"(to), constraint(value) \
                 : "memory");                                                                   \
  }                                                                                             \
  POLYPATH_DEVICE Type atomic_add_relaxed(Type* at, Type value) {                               \
    Type old;                                                                                   \
    asm volatile("atom.relaxed.sys.global.add." suffix " %0, [%1], %2;"                         \
                 : "=" constraint(old)                                                          \
                 : "l"(at), constraint(value)                                                   \
                 : "memory");                                                                   \
    return old;                                                                                 \
  }                                                                                             \
  POLYPATH_DEVICE Type atomic_add_acq_rel(Type* at, Type value) {                               \
    Type old;                                                                                   \
    asm volatile("atom.acq_rel.sys.global.add." suffix " %0, [%1], %2;"                         \
                 : "=" constraint(old)                                                          \
                 : "l"(at), constraint(value)                                                   \
                 : "memory");                                                                   \
    return old;                                                                                 \
  }
POLYPATH_SYNCHRONISING(std::uint32_t, "u32", "r")
POLYPATH_SYNCHRONISING(std::uint64_t, "u64", "l")
#undef POLYPATH_SYNCHRONISING

POLYPATH_DEVICE void fence_sys() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
POLYPATH_DEVICE void fence_gpu() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

POLYPATH_DEVICE std::uint64_t global_timer_ns() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}
POLYPATH_DEVICE void sleep_ns(unsigned ns) { __nanosleep(ns); }
POLYPATH_DEVICE void spin_pause() {}
POLYPATH_DEVICE void spin_backoff(unsigned ns) { __nanosleep(ns); }

namespace detail {
inline constexpr unsigned kSpinsPerPoll = 64;  // of spin_until: give_up may take long
}
/// How long to wait before a first look at host memory: it takes as long as many at a GPU's.
inline constexpr std::uint64_t kHostPollNs = 1'000'000;

}  // namespace polypath::device
