// What kernels of a program wait at by number: queues, and whatever else a layer above makes. Who
// made it says in words what a kernel that gave up had waited for.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "comm/wait_error.hpp"

namespace polypath {

/// Of one rank. Thread-safe.
class WaitRegistry {
 public:
  /// What was waited for, after "waited past the time limit for"; `index` counts from the first of
  /// its numbers. Called by any thread, the watchdog's too, at the latest while it is removed: what
  /// it refers to it owns.
  using Describe = std::function<std::string(const wait_error& status, std::uint32_t index)>;

  /// `count` numbers in a row, for wait_target::offset of waits for nobody; returns the first. No
  /// number is given twice, and none is 0.
  std::uint32_t add(std::uint32_t count, Describe describe);
  /// Those that begin with `first` are no more.
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
