// Words and packets that several groups use at once, by the scope in which they do: a type, as in
// libcu++.
//
//   device_scope    threads of one GPU
//   system_scope    threads of several GPUs and of the CPU
//
//   load_relaxed<Scope>(p) store_relaxed<Scope>(p, value)
//                                  std::uint32_t, std::uint64_t, and ll_packet: 16 bytes in one
//                                  access, as PTX promises for .b128 (PTX 8.3, sm_70); loaded by
//                                  .volatile, as ptxas 13 splits .relaxed where not all words of
//                                  it are used
//   load_line<Scope>(p) store_line<Scope>(p, packet)
//                                  the same by all threads of a warp, of which eight after one
//                                  another have the packets of a line of 128 bytes: it comes whole
//                                  where that was tried (POLYPATH_PROTOCOL_LL128)
//   fetch_add<Scope>(p, value) fetch_or<Scope>(p, bits) fetch_and<Scope>(p, bits)
//                                  relaxed; returns what was there
//   fetch_add_acquire<Scope>(p, value) fetch_or_acquire<Scope>(p, bits)
//                                  the same, and an acquire
//   fetch_add_release<Scope>(p, value)    the same, and a release
//   load_acquire<Scope>(p)         std::uint32_t
//   compare_exchange<Scope>(p, expected, value)
//                                  relaxed; returns what was there: `expected` where it stored
//                                  `value`
//   fence<Scope>()                 acquire and release
#pragma once

#include <cstdint>

#include "polypath/device/detail/ll_packet.hpp"
#include "polypath/device/platform.cuh"

namespace polypath::device {

struct device_scope {};
struct system_scope {};

#if defined(__CUDACC__)

namespace detail {

#define POLYPATH_CHANGES(Scope, function, instruction, type)                             \
  POLYPATH_DEVICE std::uint32_t function(Scope, std::uint32_t* at, std::uint32_t bits) { \
    std::uint32_t old;                                                                   \
    asm volatile(instruction "." type "32 %0, [%1], %2;"                                 \
                 : "=r"(old)                                                             \
                 : "l"(at), "r"(bits)                                                    \
                 : "memory");                                                            \
    return old;                                                                          \
  }                                                                                      \
  POLYPATH_DEVICE std::uint64_t function(Scope, std::uint64_t* at, std::uint64_t bits) { \
    std::uint64_t old;                                                                   \
    asm volatile(instruction "." type "64 %0, [%1], %2;"                                 \
                 : "=l"(old)                                                             \
                 : "l"(at), "l"(bits)                                                    \
                 : "memory");                                                            \
    return old;                                                                          \
  }
#define POLYPATH_OF_SCOPE(Scope, name)                                                        \
  POLYPATH_DEVICE std::uint32_t load_of(Scope, const std::uint32_t* from) {                   \
    std::uint32_t value;                                                                      \
    asm volatile("ld.relaxed." name ".u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");   \
    return value;                                                                             \
  }                                                                                           \
  POLYPATH_DEVICE std::uint32_t acquiring_load_of(Scope, const std::uint32_t* from) {         \
    std::uint32_t value;                                                                      \
    asm volatile("ld.acquire." name ".u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");   \
    return value;                                                                             \
  }                                                                                           \
  POLYPATH_DEVICE std::uint64_t load_of(Scope, const std::uint64_t* from) {                   \
    std::uint64_t value;                                                                      \
    asm volatile("ld.relaxed." name ".u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");   \
    return value;                                                                             \
  }                                                                                           \
  POLYPATH_DEVICE ll_packet load_of(Scope, const ll_packet* from) {                           \
    std::uint64_t low, high;                                                                  \
    asm volatile("{ .reg .b128 all; ld.volatile.b128 all, [%2]; mov.b128 {%0, %1}, all; }"    \
                 : "=l"(low), "=l"(high)                                                      \
                 : "l"(from)                                                                  \
                 : "memory");                                                                 \
    return {{static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(low >> 32),          \
             static_cast<std::uint32_t>(high)},                                               \
            static_cast<std::uint32_t>(high >> 32)};                                          \
  }                                                                                           \
  POLYPATH_DEVICE void store_of(Scope, std::uint32_t* to, std::uint32_t value) {              \
    asm volatile("st.relaxed." name ".u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");       \
  }                                                                                           \
  POLYPATH_DEVICE void store_of(Scope, std::uint64_t* to, std::uint64_t value) {              \
    asm volatile("st.relaxed." name ".u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");       \
  }                                                                                           \
  POLYPATH_DEVICE void store_of(Scope, ll_packet* to, const ll_packet& value) {               \
    const std::uint64_t low = value.data[0] | std::uint64_t{value.data[1]} << 32;             \
    const std::uint64_t high = value.data[2] | std::uint64_t{value.lap} << 32;                \
    asm volatile("{ .reg .b128 all; mov.b128 all, {%1, %2}; st.relaxed." name                 \
                 ".b128 [%0], all; }" ::"l"(to),                                              \
                 "l"(low), "l"(high)                                                          \
                 : "memory");                                                                 \
  }                                                                                           \
  POLYPATH_DEVICE std::uint32_t add_of(Scope, std::uint32_t* at, std::uint32_t value) {       \
    std::uint32_t old;                                                                        \
    asm volatile("atom.relaxed." name ".add.u32 %0, [%1], %2;"                                \
                 : "=r"(old)                                                                  \
                 : "l"(at), "r"(value)                                                        \
                 : "memory");                                                                 \
    return old;                                                                               \
  }                                                                                           \
  POLYPATH_DEVICE std::uint64_t add_of(Scope, std::uint64_t* at, std::uint64_t value) {       \
    std::uint64_t old;                                                                        \
    asm volatile("atom.relaxed." name ".add.u64 %0, [%1], %2;"                                \
                 : "=l"(old)                                                                  \
                 : "l"(at), "l"(value)                                                        \
                 : "memory");                                                                 \
    return old;                                                                               \
  }                                                                                           \
  POLYPATH_CHANGES(Scope, acquiring_add_of, "atom.acquire." name ".add", "u")                 \
  POLYPATH_CHANGES(Scope, releasing_add_of, "atom.release." name ".add", "u")                 \
  POLYPATH_CHANGES(Scope, or_of, "atom.relaxed." name ".or", "b")                             \
  POLYPATH_CHANGES(Scope, acquiring_or_of, "atom.acquire." name ".or", "b")                   \
  POLYPATH_CHANGES(Scope, and_of, "atom.relaxed." name ".and", "b")                           \
  POLYPATH_DEVICE std::uint32_t exchange_of(Scope, std::uint32_t* at, std::uint32_t expected, \
                                            std::uint32_t value) {                            \
    std::uint32_t old;                                                                        \
    asm volatile("atom.relaxed." name ".cas.b32 %0, [%1], %2, %3;"                            \
                 : "=r"(old)                                                                  \
                 : "l"(at), "r"(expected), "r"(value)                                         \
                 : "memory");                                                                 \
    return old;                                                                               \
  }                                                                                           \
  POLYPATH_DEVICE std::uint64_t exchange_of(Scope, std::uint64_t* at, std::uint64_t expected, \
                                            std::uint64_t value) {                            \
    std::uint64_t old;                                                                        \
    asm volatile("atom.relaxed." name ".cas.b64 %0, [%1], %2, %3;"                            \
                 : "=l"(old)                                                                  \
                 : "l"(at), "l"(expected), "l"(value)                                         \
                 : "memory");                                                                 \
    return old;                                                                               \
  }                                                                                           \
  POLYPATH_DEVICE void fence_of(Scope) { asm volatile("fence.acq_rel." name ";" ::: "memory"); }
POLYPATH_OF_SCOPE(device_scope, "gpu")
POLYPATH_OF_SCOPE(system_scope, "sys")
#undef POLYPATH_OF_SCOPE
#undef POLYPATH_CHANGES

}  // namespace detail

#else

namespace detail {

template <typename Scope, typename T>
T load_of(Scope, const T* from) {
  return load_value(from, Loading::relaxed);
}
template <typename Scope, typename T>
void store_of(Scope, T* to, const T& value) {
  store_value(to, value, Storing::relaxed);
}
template <typename Scope, typename T>
T add_of(Scope, T* at, T value) {
  return static_cast<T>(fetch_add(at, value, sizeof(T), Ordering::relaxed));
}
template <typename Scope, typename T>
T acquiring_add_of(Scope, T* at, T value) {
  return static_cast<T>(fetch_add(at, value, sizeof(T), Ordering::acquire));
}
template <typename Scope, typename T>
T releasing_add_of(Scope, T* at, T value) {
  return static_cast<T>(fetch_add(at, value, sizeof(T), Ordering::release));
}
template <typename Scope, typename T>
T acquiring_load_of(Scope, const T* from) {
  return load_value(from, Loading::acquire);
}
template <typename Scope, typename T>
T or_of(Scope, T* at, T bits) {
  return static_cast<T>(fetch_or(at, bits, sizeof(T), Ordering::relaxed));
}
template <typename Scope, typename T>
T acquiring_or_of(Scope, T* at, T bits) {
  return static_cast<T>(fetch_or(at, bits, sizeof(T), Ordering::acquire));
}
template <typename Scope, typename T>
T and_of(Scope, T* at, T bits) {
  return static_cast<T>(fetch_and(at, bits, sizeof(T)));
}
template <typename Scope, typename T>
T exchange_of(Scope, T* at, T expected, T value) {
  return static_cast<T>(compare_exchange(at, expected, value, sizeof(T)));
}
inline void fence_of(device_scope) { fence_gpu(); }
inline void fence_of(system_scope) { fence_sys(); }

}  // namespace detail

#endif

template <typename Scope, typename T>
POLYPATH_DEVICE T load_relaxed(const T* from) {
  return detail::load_of(Scope{}, from);
}
template <typename Scope, typename T>
POLYPATH_DEVICE void store_relaxed(T* to, const T& value) {
  detail::store_of(Scope{}, to, value);
}
template <typename Scope>
POLYPATH_DEVICE ll_packet load_line(const ll_packet* from) {
#if defined(__CUDACC__)
  return load_relaxed<Scope>(from);
#else
  ll_packet packet;
  detail::load_line(&packet, from);
  return packet;
#endif
}
template <typename Scope>
POLYPATH_DEVICE void store_line(ll_packet* to, const ll_packet& packet) {
#if defined(__CUDACC__)
  store_relaxed<Scope>(to, packet);
#else
  detail::store_line(to, &packet);
#endif
}
template <typename Scope, typename T>
POLYPATH_DEVICE T fetch_add(T* at, T value) {
  return detail::add_of(Scope{}, at, value);
}
template <typename Scope, typename T>
POLYPATH_DEVICE T fetch_add_acquire(T* at, T value) {
  return detail::acquiring_add_of(Scope{}, at, value);
}
template <typename Scope, typename T>
POLYPATH_DEVICE T fetch_add_release(T* at, T value) {
  return detail::releasing_add_of(Scope{}, at, value);
}
template <typename Scope, typename T>
POLYPATH_DEVICE T load_acquire(const T* from) {
  return detail::acquiring_load_of(Scope{}, from);
}
template <typename Scope, typename T>
POLYPATH_DEVICE T fetch_or(T* at, T bits) {
  return detail::or_of(Scope{}, at, bits);
}
template <typename Scope, typename T>
POLYPATH_DEVICE T fetch_or_acquire(T* at, T bits) {
  return detail::acquiring_or_of(Scope{}, at, bits);
}
template <typename Scope, typename T>
POLYPATH_DEVICE T fetch_and(T* at, T bits) {
  return detail::and_of(Scope{}, at, bits);
}
template <typename Scope, typename T>
POLYPATH_DEVICE T compare_exchange(T* at, T expected, T value) {
  return detail::exchange_of(Scope{}, at, expected, value);
}
template <typename Scope>
POLYPATH_DEVICE void fence() {
  detail::fence_of(Scope{});
}

}  // namespace polypath::device
