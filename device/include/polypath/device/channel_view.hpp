// Where a channel lies. C++17: shared by host and device; the host makes it (polypath/messaging/
// channel.h), a kernel has it by value.
#pragma once

#include <cstddef>
#include <cstdint>

#include "polypath/device/envelope.hpp"
#include "polypath/device/wait_context.hpp"

namespace polypath::device {

/// Each rank has the same layout in symmetric memory, of bytes() bytes. It begins as zeros, but for
/// the table at its beginning, which the host writes: where this rank has each rank's part of this
/// memory, and of each window; a window is symmetric memory that large messages are received into.
struct channel_view {
  static constexpr std::uint32_t kMaxRanks = 32;
  static constexpr std::uint32_t kMaxWindows = 64;
  static constexpr std::size_t kLine = 128;
  static constexpr std::size_t kUnitBytes = 16;   ///< of a ring; 12 of them are a message's
  static constexpr std::size_t kGrantBytes = 32;  ///< where a large message goes
  static constexpr std::size_t kSlotBytes = 64;   ///< of a request

  unsigned char* local;  ///< this rank's memory
  std::uint32_t rank;
  std::uint32_t ranks;
  std::uint32_t contexts;    ///< each has its own messages; one group of a rank uses it at a time
  std::uint32_t units_log2;  ///< of a ring from one rank to another: 16 bytes each
  std::uint32_t requests_log2;    ///< of a context, under way at once: 5 to 10
  std::uint32_t unexpected_log2;  ///< messages of a context that arrived before their receives
  std::uint32_t windows;
  std::uint32_t eager_bytes;  ///< larger messages are put into the matched receive's buffer
  std::uint32_t number;       ///< in the status record
  wait_context wait_ctx;

  // The table: table_words() words of 8 bytes for this memory, and for each window; the last
  // of each is the window's bytes.
  [[nodiscard]] POLYPATH_HOST_DEVICE std::size_t table_words() const { return ranks + 1; }
  [[nodiscard]] POLYPATH_HOST_DEVICE std::size_t table_bytes() const {
    return lines((windows + 1) * table_words() * sizeof(std::uint64_t));
  }

  // A context's memory:
  static constexpr std::size_t kInUse = 0;
  static constexpr std::size_t kLists = 8;      ///< begin and end of three lists
  static constexpr std::size_t kTurns = kLine;  ///< four words for each of kMaxRanks
  static constexpr std::size_t kTurnWords = 4;
  static constexpr std::size_t kCredits = kTurns + kMaxRanks * kTurnWords * 8;  ///< a line a rank
  [[nodiscard]] POLYPATH_HOST_DEVICE std::size_t grants() const { return kCredits + ranks * kLine; }
  [[nodiscard]] POLYPATH_HOST_DEVICE std::size_t arrivals() const {
    return grants() + (kGrantBytes << requests_log2);
  }
  [[nodiscard]] POLYPATH_HOST_DEVICE std::size_t slots() const {
    return arrivals() + (kUnitBytes << requests_log2);
  }
  [[nodiscard]] POLYPATH_HOST_DEVICE std::size_t posted() const {
    return slots() + (kSlotBytes << requests_log2);
  }
  [[nodiscard]] POLYPATH_HOST_DEVICE std::size_t sends() const {
    return posted() + (kUnitBytes << requests_log2);
  }
  [[nodiscard]] POLYPATH_HOST_DEVICE std::size_t unexpected() const {
    return sends() + (kUnitBytes << requests_log2);
  }
  [[nodiscard]] POLYPATH_HOST_DEVICE std::size_t rings() const {
    return unexpected() + (kUnitBytes << unexpected_log2);
  }
  [[nodiscard]] POLYPATH_HOST_DEVICE std::size_t ring_bytes() const {
    return kUnitBytes << units_log2;
  }
  [[nodiscard]] POLYPATH_HOST_DEVICE std::size_t context_bytes() const {
    return lines(rings() + ranks * ring_bytes());
  }
  [[nodiscard]] POLYPATH_HOST_DEVICE std::size_t bytes() const {
    return table_bytes() + contexts * context_bytes();
  }
  /// Units of a message of `bytes` bytes that goes through the ring.
  [[nodiscard]] POLYPATH_HOST_DEVICE static std::uint32_t units_of(std::uint32_t bytes) {
    return bytes <= 4 ? 1 : 1 + (bytes - 4 + 11) / 12;
  }
  /// The most bytes that a ring of 2^units_log2 units carries at once.
  [[nodiscard]] POLYPATH_HOST_DEVICE static std::uint32_t max_eager(std::uint32_t units_log2) {
    return ((1U << units_log2) / 2 - 1) * 12 + 4;
  }

 private:
  [[nodiscard]] POLYPATH_HOST_DEVICE static std::size_t lines(std::size_t bytes) {
    return (bytes + kLine - 1) / kLine * kLine;
  }
};

/// A message that is under way, or a receive: of the context it was begun in.
struct request {
  static constexpr std::uint32_t kNothing = 0xFFFFFFFF;  ///< it was done when its call returned
  std::uint32_t slot = kNothing;
  std::uint32_t generation = 0;
};

/// What a receive got.
struct received {
  std::uint32_t tag;
  std::uint32_t source;
  std::uint64_t bytes;  ///< that are in the buffer
};

}  // namespace polypath::device
