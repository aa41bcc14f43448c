// What a test does again and again, and the memory that it does it with.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pattern.hpp"
#include "support/memory.hpp"
#include "support/world.hpp"

namespace mpi_bench {

/// Where messages lie: each message of a window has a place of its own.
class Layout {
 public:
  Layout(std::size_t bytes, int window) noexcept : bytes_(bytes), window_(window) {}

  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] int window() const noexcept { return window_; }
  /// Offset of the `number`th message along the `flow`th flow.
  [[nodiscard]] std::size_t offset(std::size_t flow, int number) const noexcept {
    return (flow * static_cast<std::size_t>(window_) + static_cast<std::size_t>(number)) * stride();
  }
  /// Bytes of all messages along `flows` flows.
  [[nodiscard]] std::size_t total(std::size_t flows) const noexcept { return offset(flows, 0); }

 private:
  static constexpr std::size_t kAlign = 256;  ///< as cuMemAlloc aligns
  [[nodiscard]] std::size_t stride() const noexcept {
    return (bytes_ + kAlign - 1) / kAlign * kAlign;
  }

  std::size_t bytes_;
  int window_;
};

/// One iteration of a test, as this rank takes part in it.
class Exchange {
 public:
  virtual ~Exchange() = default;

  [[nodiscard]] virtual const Flows& flows() const noexcept = 0;
  /// Sends a window of messages along each flow, from `source`, and receives one, into `sink`.
  /// Returns when the sends of this rank are complete; what is sent to this rank has arrived by
  /// then, or (where only the sender knows) by the time that the sender has returned.
  virtual void run(const Layout& layout) = 0;
};

/// The memory on both sides, as large as the largest layout.
struct Buffers {
  Memory source;
  Memory sink;
};

}  // namespace mpi_bench
