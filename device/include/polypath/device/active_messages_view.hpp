// Where the rings of active messages lie. C++17: shared by host and device; the host makes it, a
// kernel has it by value.
#pragma once

#include <cstddef>
#include <cstdint>

#include "polypath/device/envelope.hpp"
#include "polypath/device/queue_view.hpp"
#include "polypath/device/wait_context.hpp"

namespace polypath::device {

/// Each rank has the same layout in symmetric memory, of bytes() bytes. It begins as zeros, but for
/// each ring's word `closed` (kOpen), and the addresses of all ranks at its beginning.
///
/// For each kind (requests, replies), each other rank and each shard there are a ring's two ends:
/// that of the consumer of what the rank sends, and that of the producer of what is sent to it.
struct active_messages_view {
  enum kind : std::uint32_t { request = 0, reply = 1 };
  static constexpr std::uint32_t kMaxRanks = 1024;
  static constexpr std::size_t kLine = 128;

  unsigned char* local;  ///< this rank's memory; `ranks` addresses, as this rank has them, begin it
  std::uint32_t rank;
  std::uint32_t ranks;
  std::uint32_t shards_log2;    ///< rings of one rank to another: groups that send spread over them
  std::uint32_t cell_bytes;     ///< cell_bytes_of() the handlers' largest arguments, or more
  std::uint32_t capacity_log2;  ///< cells of a ring
  std::uint32_t segment_log2;   ///< at least 5: a warp sends at once; a ring has at least four
  std::uint32_t number;         ///< in the status record
  wait_context wait_ctx;

  /// Bytes of a cell for messages with `arguments` bytes of arguments, at most 88.
  [[nodiscard]] POLYPATH_HOST_DEVICE static std::uint32_t cell_bytes_of(std::size_t arguments) {
    const std::size_t item = 4 + (arguments + 3) / 4 * 4;
    return item <= 12 ? 16 : item <= 24 ? 32 : item <= 48 ? 64 : 128;
  }
  [[nodiscard]] POLYPATH_HOST_DEVICE std::uint32_t shards() const { return 1U << shards_log2; }
  /// Number of rings of one kind, from or to all ranks.
  [[nodiscard]] POLYPATH_HOST_DEVICE std::uint32_t rings() const { return ranks << shards_log2; }
  [[nodiscard]] POLYPATH_HOST_DEVICE std::size_t segments() const {
    return std::size_t{1} << (capacity_log2 - segment_log2);
  }
  [[nodiscard]] POLYPATH_HOST_DEVICE std::size_t addresses_bytes() const {
    return (ranks * sizeof(void*) + kLine - 1) / kLine * kLine;
  }
  [[nodiscard]] POLYPATH_HOST_DEVICE std::size_t ring_bytes() const {
    return 5 * kLine + 2 * segments() * kLine + (std::size_t{cell_bytes} << capacity_log2);
  }
  [[nodiscard]] POLYPATH_HOST_DEVICE std::size_t bytes() const {
    return addresses_bytes() + 2 * std::size_t{rings()} * ring_bytes();
  }
  /// Both ends with `peer` of one shard.
  [[nodiscard]] POLYPATH_HOST_DEVICE std::size_t ring_offset(kind ring_kind, std::uint32_t peer,
                                                             std::uint32_t shard) const {
    const std::size_t index = ((std::size_t{ring_kind} * ranks + peer) << shards_log2) + shard;
    return addresses_bytes() + index * ring_bytes();
  }

  // In a ring's memory:
  static constexpr std::size_t kTail = 0;
  static constexpr std::size_t kHead = kLine;
  static constexpr std::size_t kClosed = 2 * kLine;
  static constexpr std::size_t kExecuted = 3 * kLine;
  static constexpr std::size_t kEnded = 4 * kLine;
  static constexpr std::size_t kCredit = 5 * kLine;
};

}  // namespace polypath::device
