// What kernels of a program wait at by number: queues, and other objects of layers above. The layer
// that made the object describes what a kernel that timed out had waited for.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "comm/wait_error.hpp"

namespace polypath {

/// The registry of one rank. Thread-safe.
class WaitRegistry {
 public:
  /// What was waited for, after "waited past the time limit for"; `index` counts from the first of
  /// its numbers. Called by any thread, the watchdog's too, until remove() returns: it owns what it
  /// refers to.
  using Describe = std::function<std::string(const wait_error& status, std::uint32_t index)>;

  /// `count` consecutive numbers, for wait_target::offset of waits for wait_error::kNobody; returns
  /// the first. No number is given twice, and none is 0.
  std::uint32_t add(std::uint32_t count, Describe describe);
  /// Removes the numbers that begin with `first`.
  void remove(std::uint32_t first);
  /// Empty when the record is of none of them. Of a mismatch the number is the upper half of
  /// wait_error::expected.
  [[nodiscard]] std::string describe(const wait_error& status) const;

 private:
  struct Numbers {
    std::uint32_t count;
    Describe describe;
  };
  mutable std::mutex mutex_;
  std::uint32_t next_ = 1;
  std::map<std::uint32_t, Numbers> all_;  // by the first
};

}  // namespace polypath
