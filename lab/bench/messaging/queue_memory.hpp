// Queues and pairs of one GPU for the benchmark's kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "gpu.hpp"
#include "polypath/device/queue_view.hpp"
#include "polypath/device/spsc_view.hpp"

namespace messaging_bench {

inline polypath::device::queue_view make_queue(Gpu& gpu, std::size_t cell_bytes,
                                               unsigned capacity_log2, unsigned segment_log2) {
  using polypath::device::queue_view;
  const std::size_t segments = std::size_t{1} << (capacity_log2 - segment_log2);
  queue_view view{};
  auto* const counters = static_cast<std::uint64_t*>(gpu.alloc(3 * 128));
  view.tail = counters;
  view.head = counters + 16;
  view.closed = counters + 32;
  gpu.set(view.closed, 0xFF, sizeof *view.closed);
  const std::size_t words = segments * queue_view::kWordStride;
  view.credit = static_cast<std::uint32_t*>(gpu.alloc(2 * words * sizeof(std::uint32_t)));
  view.read = view.credit + words;
  view.cells = static_cast<unsigned char*>(gpu.alloc(cell_bytes << capacity_log2));
  view.capacity_log2 = capacity_log2;
  view.segment_log2 = segment_log2;
  view.wait_ctx = gpu.wait_ctx();
  return view;
}

/// How many turns have been taken of a queue that kernels use now.
inline std::string turns_taken(Gpu& producers, const std::uint64_t* tail, Gpu& consumers,
                               const std::uint64_t* head) {
  std::uint64_t pushed = 0;
  std::uint64_t popped = 0;
  producers.peek(&pushed, tail, sizeof pushed);
  consumers.peek(&popped, head, sizeof popped);
  return "producers have taken " + std::to_string(pushed) + " turns, consumers " +
         std::to_string(popped);
}

/// `count` pairs, one after the other: 16 words of each array, and cell_bytes << capacity_log2.
inline polypath::device::spsc_view make_pairs(Gpu& gpu, std::size_t count, std::size_t cell_bytes,
                                              unsigned capacity_log2, unsigned segment_log2) {
  polypath::device::spsc_view view{};
  auto* const words = static_cast<std::uint64_t*>(gpu.alloc(3 * 128 * count));
  view.credit = words;
  view.sent = words + 16 * count;
  view.received = words + 32 * count;
  view.cells = static_cast<unsigned char*>(gpu.alloc(count * cell_bytes << capacity_log2));
  view.capacity_log2 = capacity_log2;
  view.segment_log2 = segment_log2;
  view.wait_ctx = gpu.wait_ctx();
  return view;
}

}  // namespace messaging_bench
