// The layout of a queue: sizes and offsets, from the options of its creator. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "polypath/messaging/queue.h"

namespace polypath {

/// Bytes are multiples of 128; offsets are of a side's part.
struct QueueShape {
  bool is_pair = false;
  bool is_line = false;
  std::uint32_t item_bytes = 0;
  std::uint32_t capacity_log2 = 0;
  std::uint32_t segment_log2 = 0;
  std::uint32_t timeout_ms = 0;  ///< 0: the communicator's

  [[nodiscard]] std::uint64_t capacity() const { return std::uint64_t{1} << capacity_log2; }
  [[nodiscard]] std::uint64_t segment() const { return std::uint64_t{1} << segment_log2; }
  [[nodiscard]] std::uint64_t segments() const { return capacity() / segment(); }
  [[nodiscard]] std::uint64_t cell_bytes() const;

  /// A line of bytes for each counter, and for each segment's word.
  static constexpr std::uint64_t kLine = 128;

  // With the producer: tail and credit of a queue, sent and credit of a pair.
  [[nodiscard]] std::uint64_t ticket_offset() const { return 0; }
  [[nodiscard]] std::uint64_t credit_offset() const { return kLine; }
  [[nodiscard]] std::uint64_t producer_bytes() const { return kLine + credit_bytes(); }
  [[nodiscard]] std::uint64_t credit_bytes() const { return is_pair ? kLine : segments() * kLine; }

  // With the consumer: head (of a pair: received), closed, read; then the cells.
  [[nodiscard]] std::uint64_t head_offset() const { return 0; }
  [[nodiscard]] std::uint64_t closed_offset() const { return kLine; }
  [[nodiscard]] std::uint64_t read_offset() const { return 2 * kLine; }
  [[nodiscard]] std::uint64_t cells_offset() const {
    return read_offset() + (is_pair ? 0 : segments() * kLine);
  }
  [[nodiscard]] std::uint64_t consumer_bytes() const {
    return cells_offset() + capacity() * cell_bytes();
  }

  bool operator==(const QueueShape&) const = default;
};

/// Throws InvalidArgument, naming what is wrong.
QueueShape shape_of(const polypath_queue_options* options);

}  // namespace polypath
