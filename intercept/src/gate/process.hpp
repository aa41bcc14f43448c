// What interceptors need of the process and its machine without the C++ library, since they work
// before it may be used, and after: a lock for a scope, memory, pauses, variables of the
// environment, names. Any thread.
#pragma once

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace polypath::gate {

class Lock {
 public:
  explicit Lock(pthread_mutex_t& mutex) noexcept : mutex_(mutex) { pthread_mutex_lock(&mutex_); }
  ~Lock() { pthread_mutex_unlock(&mutex_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  pthread_mutex_t& mutex_;
};

/// Memory for an array of values, uninitialised.
template <typename Value>
class Array {
 public:
  explicit Array(std::size_t count) noexcept
      : values_(static_cast<Value*>(std::malloc((count + 1) * sizeof(Value)))) {}
  ~Array() { std::free(values_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  explicit operator bool() const noexcept { return values_ != nullptr; }
  Value* get() const noexcept { return values_; }
  Value& operator[](std::size_t index) const noexcept { return values_[index]; }

 private:
  Value* values_;
};

/// Sleeps; less after a signal.
inline void pause_us(long microseconds) noexcept {
  constexpr long kSecond = 1'000'000;
  const timespec pause{microseconds / kSecond, microseconds % kSecond * 1000};
  nanosleep(&pause, nullptr);
}

/// Whether a variable of the environment has this value.
inline bool is_set_to(const char* variable, const char* value) noexcept {
  const char* const text = std::getenv(variable);
  return text != nullptr && std::strcmp(text, value) == 0;
}

/// A name of this boot of this machine, or of the machine: machines may share their names. The text
/// is zeros before.
inline void name_machine(char* text, std::size_t size) noexcept {
  const int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (file < 0 || read(file, text, size - 1) <= 0) gethostname(text, size - 1);
  if (file >= 0) close(file);
}

/// FNV-1a (Fowler, Noll, Vo), 64 bits.
inline std::uint64_t hash_of(const void* bytes, std::size_t count,
                             std::uint64_t start = 0xCBF29CE484222325U) noexcept {
  const auto* const data = static_cast<const unsigned char*>(bytes);
  for (std::size_t i = 0; i < count; ++i) start = (start ^ data[i]) * 0x100000001B3U;
  return start;
}

/// No limit for waits between ranks, in milliseconds: base/options.cpp allows no more.
inline constexpr std::uint32_t kMaxTimeoutMs = 86'400'000;

}  // namespace polypath::gate
