// How much host memory all contexts of this process together keep page-locked for transfers:
// staging memory, the slots of pageable copies, tables of blocks, buffers of probes. What does not
// fit is not made, and its routes are left out. Memory of communicators and of programs does not
// count.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "base/units.hpp"

namespace polypath {

/// Belongs to one context; the bytes in use are counted for the process. Thread-safe.
class PinnedBudget {
 public:
  static constexpr std::uint64_t kDefaultLimit = 256 * kMiB;

  explicit PinnedBudget(std::uint64_t limit) noexcept : limit_(limit) {}
  PinnedBudget(const PinnedBudget&) = delete;
  PinnedBudget& operator=(const PinnedBudget&) = delete;

  /// A part that was taken, until this ends. Movable.
  class Share {
   public:
    Share() = default;
    ~Share() { used_ -= std::exchange(bytes_, 0); }
    Share(Share&& other) noexcept : bytes_(std::exchange(other.bytes_, 0)) {}
    Share& operator=(Share&& other) noexcept {
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    /// The memory stays page-locked to the end of the process.
    void leave() noexcept { bytes_ = 0; }

   private:
    friend PinnedBudget;
    explicit Share(std::uint64_t bytes) noexcept : bytes_(bytes) {}
    std::uint64_t bytes_ = 0;
  };

  /// Before `bytes` are page-locked. Throws DriverError (out of memory) where the limit would be
  /// passed.
  Share take(std::uint64_t bytes);

  /// Whether `bytes` more would fit now.
  [[nodiscard]] bool has_room(std::uint64_t bytes) const noexcept {
    return bytes <= limit_ && used_ <= limit_ - bytes;
  }
  [[nodiscard]] std::uint64_t limit() const noexcept { return limit_; }
  /// Bytes that all contexts of this process have now.
  [[nodiscard]] static std::uint64_t used() noexcept { return used_; }

 private:
  static std::atomic<std::uint64_t> used_;
  const std::uint64_t limit_;
};

}  // namespace polypath
