// Threads that sleep until a word changes.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <ctime>

namespace polypath {

/// Whose threads sleep on a word: this process's, or those of all that have mapped it.
enum class FutexScope : int { process = FUTEX_PRIVATE_FLAG, shared = 0 };

/// Sleeps while `word` is `seen`, until another thread wakes it; may return earlier.
inline void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t seen,
                       FutexScope scope) noexcept {
  syscall(SYS_futex, &word, FUTEX_WAIT | static_cast<int>(scope), seen, nullptr, nullptr, 0);
}

/// Sleeps as above, but no longer than `limit`.
inline void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t seen, FutexScope scope,
                       std::chrono::nanoseconds limit) noexcept {
  constexpr std::int64_t kSecond = 1'000'000'000;
  if (limit.count() <= 0) return;
  const timespec time{limit.count() / kSecond, limit.count() % kSecond};
  syscall(SYS_futex, &word, FUTEX_WAIT | static_cast<int>(scope), seen, &time, nullptr, 0);
}

/// Wakes up to `threads` threads that sleep on `word`, in one call of the system.
inline void futex_wake(std::atomic<std::uint32_t>& word, FutexScope scope,
                       int threads = INT_MAX) noexcept {
  syscall(SYS_futex, &word, FUTEX_WAKE | static_cast<int>(scope), threads, nullptr, nullptr, 0);
}

}  // namespace polypath
