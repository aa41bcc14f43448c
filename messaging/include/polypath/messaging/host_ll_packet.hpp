// Packets on the CPU: 16 bytes in one access, as GPUs make them (device/detail/ll_packet.hpp),
// and how a CPU thread waits for them. C++17.
//
// x86-64 promises that for aligned accesses where it has AVX, AArch64 where it has LSE2. Elsewhere
// has_atomic_16_byte_access() is false, and no queue that the CPU uses can be created.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>

#include "polypath/device/detail/ll_packet.hpp"
#include "polypath/device/wait_context.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

#if defined(__SANITIZE_THREAD__)
#define POLYPATH_UNSEEN_BY_TSAN __attribute__((no_sanitize("thread"), noinline))
extern "C" {
void __tsan_acquire(void* at);
void __tsan_release(void* at);
}
#else
#define POLYPATH_UNSEEN_BY_TSAN inline
#endif

namespace polypath::messaging {

/// Whether this CPU moves 16 bytes at once.
inline bool has_atomic_16_byte_access() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx") != 0;
#elif defined(__aarch64__) && defined(__linux__)
  return (getauxval(AT_HWCAP) >> 25 & 1) != 0;  // HWCAP_USCAT
#else
  return false;
#endif
}

namespace detail {

using device::ll_packet;

/// One access; other threads and GPUs may store there.
POLYPATH_UNSEEN_BY_TSAN ll_packet load_16(const ll_packet* from) {
  ll_packet packet;
#if defined(__x86_64__)
  const __m128i all = _mm_load_si128(reinterpret_cast<const __m128i*>(from));
  asm volatile("" ::: "memory");
  _mm_store_si128(reinterpret_cast<__m128i*>(&packet), all);
#elif defined(__aarch64__)
  std::uint64_t low, high;
  asm volatile("ldp %0, %1, [%2]" : "=r"(low), "=r"(high) : "r"(from) : "memory");
  std::memcpy(&packet, &low, 8);
  std::memcpy(reinterpret_cast<char*>(&packet) + 8, &high, 8);
#else
  std::memcpy(&packet, from, sizeof packet);
#endif
  return packet;
}
POLYPATH_UNSEEN_BY_TSAN void store_16(ll_packet* to, const ll_packet& packet) {
#if defined(__x86_64__)
  asm volatile("" ::: "memory");
  _mm_store_si128(reinterpret_cast<__m128i*>(to),
                  _mm_load_si128(reinterpret_cast<const __m128i*>(&packet)));
  asm volatile("" ::: "memory");
#elif defined(__aarch64__)
  std::uint64_t low, high;
  std::memcpy(&low, &packet, 8);
  std::memcpy(&high, reinterpret_cast<const char*>(&packet) + 8, 8);
  asm volatile("stp %0, %1, [%2]" ::"r"(low), "r"(high), "r"(to) : "memory");
#else
  std::memcpy(to, &packet, sizeof packet);
#endif
}

/// Before the packets of a push: what this thread stored before comes before them.
inline void release_before(ll_packet* first) {
#if defined(__aarch64__)
  asm volatile("dmb ish" ::: "memory");
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_release(first);
#else
  (void)first;
#endif
}
/// After the packets of a pop: what this thread loads from now on is as new as they are.
inline void acquire_behind(ll_packet* first) {
#if defined(__aarch64__)
  asm volatile("dmb ishld" ::: "memory");
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_acquire(first);
#else
  (void)first;
#endif
}

template <typename Word>
Word load_word(const Word* from) {
  return __atomic_load_n(from, __ATOMIC_ACQUIRE);
}
template <typename Word>
void store_word(Word* to, Word value) {
  __atomic_store_n(to, value, __ATOMIC_RELEASE);
}

inline void pause_cpu() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Whether the communicator was aborted: a load of a word that changes once.
inline bool was_aborted(const device::wait_context& wait_ctx) {
  return wait_ctx.abort_flag != nullptr && load_word(wait_ctx.abort_flag) != 0;
}

/// Waits until `ready()`; false: the abort word was set, or the time limit is over.
template <typename Ready>
bool wait_on_host(const device::wait_context& wait_ctx, const Ready& ready) {
  constexpr unsigned kOften = 512;  // looks before others may have the core
  constexpr unsigned kLook = 64;    // ... before a look at the clock
  std::chrono::steady_clock::time_point began;
  bool has_begun = false;  // `turn` comes around
  for (unsigned turn = 0;; ++turn) {
    if (ready()) return true;
    if (turn < kOften)
      pause_cpu();
    else
      std::this_thread::yield();
    if (turn % kLook != kLook - 1) continue;
    if (was_aborted(wait_ctx)) return false;
    const auto now = std::chrono::steady_clock::now();
    if (!has_begun) began = now;
    has_begun = true;
    if (now - began > std::chrono::nanoseconds(wait_ctx.time_limit_ns)) return false;
  }
}

/// How many bytes an item has: known to the compiler, or not.
template <std::size_t kItem>
struct FixedBytes {
  static constexpr std::size_t bytes = kItem;
};
struct AnyBytes {
  std::size_t bytes;
};

/// The cells of a ring, as polypath/device/detail/ring_buffer.cuh has them.
template <typename Bytes>
class HostCells {
 public:
  HostCells(unsigned char* begin, unsigned capacity_log2, Bytes item)
      : begin_(begin), capacity_log2_(capacity_log2), item_(item) {}

  [[nodiscard]] std::size_t item_bytes() const { return item_.bytes; }
  [[nodiscard]] std::uint64_t place_of(std::uint64_t turn) const {
    return turn & ((std::uint64_t{1} << capacity_log2_) - 1);
  }
  [[nodiscard]] std::uint32_t generation_of(std::uint64_t turn) const {
    return static_cast<std::uint32_t>(turn >> capacity_log2_);
  }
  [[nodiscard]] ll_packet* slot_of(std::uint64_t turn) const {
    return reinterpret_cast<ll_packet*>(begin_) +
           place_of(turn) * device::ll_packet_count(item_.bytes);
  }

  void put(std::uint64_t turn, const unsigned char* item) const {
    ll_packet* const to = slot_of(turn);
    ll_packet packet{};
    packet.lap = generation_of(turn) + 1;
    for (std::size_t done = 0, i = 0; done < item_.bytes; done += ll_packet::kBytes, ++i) {
      std::memcpy(packet.data, item + done, bytes_at(done));
      store_16(to + i, packet);
    }
    for (std::size_t i = used(); i < device::ll_packet_count(item_.bytes); ++i)
      store_16(to + i, packet);
  }
  /// Whether it is there; then `item` is it, else `item` may be anything.
  bool get(std::uint64_t turn, unsigned char* item) const {
    const ll_packet* const from = slot_of(turn);
    const std::uint32_t lap = generation_of(turn) + 1;
    for (std::size_t i = used(); i < device::ll_packet_count(item_.bytes); ++i)
      if (load_16(from + i).lap != lap) return false;
    for (std::size_t done = 0, i = 0; done < item_.bytes; done += ll_packet::kBytes, ++i) {
      const ll_packet packet = load_16(from + i);
      if (packet.lap != lap) return false;
      std::memcpy(item + done, packet.data, bytes_at(done));
    }
    return true;
  }

 private:
  [[nodiscard]] std::size_t used() const {
    return (item_.bytes + ll_packet::kBytes - 1) / ll_packet::kBytes;
  }
  [[nodiscard]] std::size_t bytes_at(std::size_t done) const {
    const std::size_t rest = item_.bytes - done;
    return rest < ll_packet::kBytes ? rest : ll_packet::kBytes;
  }

  unsigned char* begin_;
  unsigned capacity_log2_;
  Bytes item_;
};

}  // namespace detail
}  // namespace polypath::messaging
