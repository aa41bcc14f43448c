// Memory of queues and pairs for tests on the host, and what a run of them leaves.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "polypath/device/detail/ll_packet.hpp"
#include "polypath/device/queue_view.hpp"
#include "polypath/device/spsc_view.hpp"
#include "queue_kernels.h"

namespace polypath::test {

/// Bytes that begin at a multiple of 128.
class LineBytes {
 public:
  LineBytes(std::size_t bytes, unsigned char value) : all_(bytes + 128, value) {}
  template <typename T>
  [[nodiscard]] T* get() {
    const auto begin = reinterpret_cast<std::uintptr_t>(all_.data());
    return reinterpret_cast<T*>(all_.data() + (128 - begin % 128) % 128);
  }

 private:
  std::vector<unsigned char> all_;
};

/// How a wait ends; the host side of a kernel that times out.
struct WaitContextMemory {
  std::uint32_t abort_flag = 0;
  device::wait_error status{};
  std::uint32_t reports = 0;
  std::uint64_t next_abort_poll_ns = 0;

  device::wait_context wait_ctx() {
    return {&abort_flag,        1'000'000'000, &status, &reports, device::wait_error::kProgram,
            &next_abort_poll_ns};
  }
};

inline std::size_t cell_bytes(std::uint32_t words) {
  return words <= 3 ? 16 : words <= 6 ? 32 : words <= 12 ? 64 : 128;
}

class QueueMemory {
 public:
  QueueMemory(std::uint32_t words, unsigned capacity_log2, unsigned segment_log2)
      : cell_bytes_(cell_bytes(words)), cells_(cell_bytes_ << capacity_log2, 0) {
    view_.tail = counters_.get<std::uint64_t>();
    view_.head = view_.tail + 16;
    view_.closed = view_.tail + 32;
    *view_.closed = device::queue_view::kOpen;
    view_.credit = words_.get<std::uint32_t>();
    view_.read = view_.credit + kSegments * device::queue_view::kWordStride;
    view_.cells = cells_.get<unsigned char>();
    view_.capacity_log2 = capacity_log2;
    view_.segment_log2 = segment_log2;
    view_.number = 41;
    view_.wait_ctx = wait_context_.wait_ctx();
  }
  [[nodiscard]] const device::queue_view& view() const { return view_; }
  WaitContextMemory& wait_ctx() { return wait_context_; }

  /// As after `lap` laps, all of which were popped.
  void start_at(std::uint32_t lap) {
    *view_.tail = *view_.head = std::uint64_t{lap} << view_.capacity_log2;
    for (unsigned i = 0; i < 1U << (view_.capacity_log2 - view_.segment_log2); ++i) {
      view_.credit[i * device::queue_view::kWordStride] = lap;
      view_.read[i * device::queue_view::kWordStride] = lap << view_.segment_log2;
    }
    auto* const packets = reinterpret_cast<device::ll_packet*>(view_.cells);
    for (std::size_t i = 0; i < cell_bytes_ << view_.capacity_log2; i += sizeof *packets)
      packets[i / sizeof *packets].lap = lap;
  }

 private:
  static constexpr std::size_t kSegments = 64;
  LineBytes counters_{3 * 128, 0};
  LineBytes words_{2 * kSegments * 128, 0};
  std::size_t cell_bytes_;
  LineBytes cells_;
  WaitContextMemory wait_context_;
  device::queue_view view_{};
};

/// `pairs` of them, one after the other.
class PairMemory {
 public:
  PairMemory(std::uint32_t words, unsigned capacity_log2, unsigned segment_log2, unsigned pairs)
      : words_(std::size_t{3} * 128 * pairs, 0),
        cells_(cell_bytes(words) * pairs << capacity_log2, 0) {
    view_.credit = words_.get<std::uint64_t>();
    view_.sent = view_.credit + std::size_t{16} * pairs;
    view_.received = view_.sent + std::size_t{16} * pairs;
    view_.cells = cells_.get<unsigned char>();
    view_.capacity_log2 = capacity_log2;
    view_.segment_log2 = segment_log2;
    view_.number = 43;
    view_.wait_ctx = wait_context_.wait_ctx();
  }
  [[nodiscard]] const device::spsc_view& view() const { return view_; }
  WaitContextMemory& wait_ctx() { return wait_context_; }

 private:
  LineBytes words_;
  LineBytes cells_;
  WaitContextMemory wait_context_;
  device::spsc_view view_{};
};

}  // namespace polypath::test
