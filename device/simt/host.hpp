// polypath/device/platform.cuh, which says what each function means, on the host. Kernels that are
// compiled against it are host builds: found by name (host_kernels.hpp), run by fibers (grid.hpp).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "simt/host_kernels.hpp"

#define POLYPATH_DEVICE inline
#define POLYPATH_DEVICE_NOINLINE inline
#define SIMT_KERNEL(name, max_threads, ...)                                       \
  static void name(__VA_ARGS__);                                                  \
  static const ::polypath::simt::HostKernelRegistration name##_host_kernel_entry( \
      ::polypath::simt::make_host_kernel(#name, max_threads, &name));             \
  static void name(__VA_ARGS__)
#define SIMT_KERNEL_MIN_BLOCKS(name, max_threads, blocks, ...) \
  SIMT_KERNEL(name, max_threads, __VA_ARGS__)
#define SIMT_EMULATED_THREADS(name, threads) \
  static const ::polypath::simt::EmulatedThreads name##_emulated_threads(#name, threads)
#define SIMT_SHARED(Type, name)       \
  static const char name##_place = 0; \
  Type& name = *static_cast<Type*>(   \
      ::polypath::device::detail::shared_variable(&name##_place, sizeof(Type), alignof(Type)))

namespace polypath::device {

struct ll_packet;

/// On the host all memory is near.
inline constexpr std::uint64_t kHostPollNs = 0;

// All of these are called by a thread of a running block only.

unsigned thread_index();
unsigned block_size();
unsigned block_index();
unsigned grid_size();
inline unsigned rank_in_block() { return thread_index(); }
inline unsigned threads_of_block() { return block_size(); }
inline unsigned rank_in_warp() { return thread_index() % 32; }

void barrier_sync(unsigned id, unsigned threads);
bool barrier_any(unsigned id, unsigned threads, bool value);
void grid_dependency_wait();
inline void block_sync() { barrier_sync(0, block_size()); }
inline bool block_any(bool value) { return barrier_any(0, block_size(), value); }

void warp_sync();
unsigned warp_ballot(bool value);
inline bool warp_any(bool value) { return warp_ballot(value) != 0; }
inline bool warp_all(bool value) { return warp_ballot(value) == ~0U; }

template <typename T>
T& as_shared(T& in_shared_memory) {
  return in_shared_memory;
}
template <typename T>
T opaque(T value) {
  return value;
}

inline unsigned countr_one(unsigned bits) { return static_cast<unsigned>(std::countr_one(bits)); }
inline unsigned popcount(unsigned bits) { return static_cast<unsigned>(std::popcount(bits)); }
inline unsigned countl_zero(unsigned bits) { return static_cast<unsigned>(std::countl_zero(bits)); }

void fence_sys();
void fence_gpu();
std::uint64_t global_timer_ns();
void sleep_ns(unsigned ns);
void spin_pause();
inline void spin_backoff(unsigned) {}  // a paused thread is not run until something changes
/// On the host alone: this thread forgets what it has looked at. In a group whose leader pauses
/// for all, the others call it instead of pausing.
void stop_watching();

namespace detail {

inline constexpr unsigned kSpinsPerPoll = 1;  // of spin_until: a turn comes when something changed

void* dynamic_shared_memory();
void* shared_variable(const void* key, std::size_t bytes, std::size_t alignment);
/// The value of the thread `lane` of this warp.
std::uint64_t exchange_in_warp(std::uint64_t value, unsigned lane);

enum class Loading : std::uint8_t { plain, constant, streaming, relaxed, acquire };
enum class Storing : std::uint8_t { plain, relaxed, release };
enum class Ordering : std::uint8_t { relaxed, acquire, release, acq_rel };

struct LoadPart {
  void* to;          ///< memory of the program
  const void* from;  ///< global memory
  std::size_t bytes;
};
/// All at once; returns when all have been read.
void load_bytes(const LoadPart* parts, std::size_t count, Loading how);
void store_bytes(void* to, const void* value, std::size_t bytes, Storing how);
/// 16 bytes, in two accesses that others may see one without the other: PTX promises one access
/// for .b128 (ll_packet), and for no vector.
void store_vector(void* to, const void* value, Storing how);
/// This thread's 16 bytes of the warp's 128-byte lines, aligned: eight threads after one another
/// have a line. All threads of the warp call it. A line comes whole where the machine's do
/// (Machine::Options::whole_lines); else each thread's part comes by itself.
void store_line(void* to, const void* part);
void load_line(void* part, const void* from);
/// Adds to 4 or 8 bytes.
void add(void* to, std::uint64_t value, unsigned bytes, Ordering order);
/// Adds, and returns the previous value.
std::uint64_t fetch_add(void* at, std::uint64_t value, unsigned bytes, Ordering order);
/// Sets bits, and returns the previous value.
std::uint64_t fetch_or(void* at, std::uint64_t bits, unsigned bytes, Ordering order);
std::uint64_t fetch_and(void* at, std::uint64_t bits, unsigned bytes);
/// Stores `value` where `expected` is, and returns what was there.
std::uint64_t compare_exchange(void* at, std::uint64_t expected, std::uint64_t value,
                               unsigned bytes);

/// Into how many parts a tile is cut, and the thread of a group whose part it is: the same for all
/// that ask with the same arguments.
unsigned parts_of_tile();
unsigned owner_of_part(const void* tile, unsigned part, unsigned group_size);

/// Ends the grid: an access of more than a byte has to be aligned to its size.
[[noreturn]] void fail_misaligned(const void* address, std::size_t bytes);

template <typename T>
void require_aligned(const T* address) {
  if (reinterpret_cast<std::uintptr_t>(address) % sizeof(T) != 0)
    fail_misaligned(address, sizeof(T));
}

template <typename T>
T load_value(const T* from, Loading how) {
  static_assert(std::is_trivially_copyable_v<T>);
  static_assert(sizeof(T) <= 16 && (sizeof(T) & (sizeof(T) - 1)) == 0);
  require_aligned(from);
  T value;
  const LoadPart part{&value, from, sizeof(T)};
  load_bytes(&part, 1, how);
  return value;
}
template <typename T>
void store_value(T* to, const T& value, Storing how) {
  static_assert(std::is_trivially_copyable_v<T>);
  static_assert(sizeof(T) <= 16 && (sizeof(T) & (sizeof(T) - 1)) == 0);
  require_aligned(to);
  if constexpr (sizeof(T) == 16 && !std::is_same_v<T, ll_packet>)
    store_vector(to, &value, how);
  else
    store_bytes(to, &value, sizeof(T), how);
}
template <typename T>
concept Word = std::is_same_v<T, std::uint32_t> || std::is_same_v<T, std::uint64_t>;

}  // namespace detail

template <typename T>
T* dynamic_shared() {
  return static_cast<T*>(detail::dynamic_shared_memory());
}

template <typename T>
T warp_shuffle(T value, unsigned lane) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = detail::exchange_in_warp(bits, lane);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}
template <typename T>
T warp_shuffle_xor(T value, unsigned mask) {
  return warp_shuffle(value, (thread_index() % 32) ^ mask);
}

template <typename T>
T load(const T* from) {
  return detail::load_value(from, detail::Loading::plain);
}
template <typename T>
T load_constant(const T* from) {
  return detail::load_value(from, detail::Loading::constant);
}
template <typename T>
T load_streaming(const T* from) {
  return detail::load_value(from, detail::Loading::streaming);
}
template <typename T>
T load_volatile(const T* from) {
  return detail::load_value(from, detail::Loading::relaxed);
}
template <typename T>
T load_relaxed(const T* from) {
  return detail::load_value(from, detail::Loading::relaxed);
}
template <detail::Word T>
T load_acquire(const T* from) {
  return detail::load_value(from, detail::Loading::acquire);
}

template <typename T>
void store(T* to, std::type_identity_t<T> value) {
  detail::store_value(to, value, detail::Storing::plain);
}
template <typename T>
void store_streaming(T* to, std::type_identity_t<T> value) {
  detail::store_value(to, value, detail::Storing::plain);
}
template <typename T>
void store_volatile(T* to, std::type_identity_t<T> value) {
  detail::store_value(to, value, detail::Storing::relaxed);
}
template <typename T>
void store_relaxed(T* to, std::type_identity_t<T> value) {
  detail::store_value(to, value, detail::Storing::relaxed);
}
template <detail::Word T>
void store_release(T* to, std::type_identity_t<T> value) {
  detail::store_value(to, value, detail::Storing::release);
}

template <detail::Word T>
void red_add_relaxed(T* to, std::type_identity_t<T> value) {
  detail::add(to, value, sizeof(T), detail::Ordering::relaxed);
}
template <detail::Word T>
void red_add_release(T* to, std::type_identity_t<T> value) {
  detail::add(to, value, sizeof(T), detail::Ordering::release);
}
template <detail::Word T>
T atomic_add_relaxed(T* at, std::type_identity_t<T> value) {
  return static_cast<T>(detail::fetch_add(at, value, sizeof(T), detail::Ordering::relaxed));
}
template <detail::Word T>
T atomic_add_acq_rel(T* at, std::type_identity_t<T> value) {
  return static_cast<T>(detail::fetch_add(at, value, sizeof(T), detail::Ordering::acq_rel));
}

}  // namespace polypath::device

namespace polypath::simt::detail {
using namespace device::detail;
}
