// The tables of matching in MPI's order by the whole GPU, and how large they are. C++17: shared by
// host and device.
#pragma once

#include <cstdint>

#include "polypath/device/envelope.hpp"

namespace polypath::device {

namespace detail {

inline constexpr unsigned kPatterns = 4;  // of a message: its key, and those with wildcards
/// More in a group are ordered by a bitmap.
inline constexpr std::uint32_t kShortGroup = 16;
/// Without wildcards: what a thread pairs, and what a warp does.
inline constexpr unsigned kFewOfGroup = 4;
inline constexpr unsigned kMaxPerGroup = 256;

/// The least power of two that is `count` or more, and 32 or more, as its logarithm.
POLYPATH_HOST_DEVICE constexpr std::uint32_t log2_above(std::uint32_t count) {
  std::uint32_t log2 = 5;
  while (1U << log2 < count) ++log2;
  return log2;
}
/// The most groups that are noted: long groups of `capacity` receives and messages, or keys that
/// have both, and more than a few of one of them.
POLYPATH_HOST_DEVICE constexpr std::uint32_t max_noted_groups(std::uint32_t capacity) {
  static_assert((1 + kPatterns) * (kFewOfGroup + 2) <= 2 * kShortGroup, "keys are the most");
  return 2 * capacity / (kFewOfGroup + 2) + 1;
}

}  // namespace detail

/// What the phases work on. Slots are a power of two, at least twice the receives.
template <typename Index>
struct mpi_tables {
  using index = Index;

  struct counters {
    std::uint64_t lists;    ///< given out: of receives, and in the upper half of messages
    std::uint64_t groups;   ///< keys that are noted
    std::uint32_t longs;    ///< long groups that are noted
    std::uint32_t kinds;    ///< of patterns: a byte each, not 0 where there are such receives
    std::uint32_t is_long;  ///< a group is too long for a warp
    std::uint32_t matches;
    std::uint64_t reason;  ///< 0, or a match_status and in the lower half the index with it
  };

  std::uint64_t* keys;            ///< of slots
  std::uint32_t* receive_counts;  ///< of slots; after them, of all that have wildcards
  std::uint32_t* message_counts;
  index* receive_begins;  ///< in the list of receives
  index* message_begins;
  index* taken;          ///< of a key: by wildcards; of a pattern: what is read of its list
  index* receives;       ///< lists: of keys, and of all that have wildcards
  index* messages;       ///< lists of keys and patterns: up to four times the capacity
  index* receive_slots;  ///< of each receive: slot of its pattern,
  index* receive_ranks;  ///< and its rank in its list
  index* message_slots;  ///< four each: of its key, and of its patterns
  index* message_ranks;
  /// Slots of keys that a warp pairs; or, where there are wildcards or a key has very many, of long
  /// groups: slot times two, and one for a list of messages.
  std::uint32_t* noted;
  counters* all;
  std::uint32_t slots_log2;
  std::uint32_t capacity;

  static constexpr index kNoSlot = static_cast<index>(~index{0});
  [[nodiscard]] POLYPATH_HOST_DEVICE std::uint32_t slots() const { return 1U << slots_log2; }
};

/// The tables of the whole GPU, one after the other in its memory.
struct mpi_workspace {
  static constexpr unsigned kPhases = 10;
  static constexpr unsigned kChoosing = 8;

  POLYPATH_HOST_DEVICE static constexpr bool runs_in_one_warp(unsigned phase) {
    return phase == kChoosing;
  }
  POLYPATH_HOST_DEVICE static std::uint64_t bytes(std::uint32_t capacity) {
    cutter counting(nullptr);
    cut(counting, capacity);
    return counting.bytes();
  }
  POLYPATH_HOST_DEVICE static mpi_tables<std::uint32_t> cut(unsigned char* workspace,
                                                            std::uint32_t capacity) {
    cutter cutting(workspace);
    return cut(cutting, capacity);
  }

 private:
  /// Cuts a workspace into arrays; without one it counts bytes.
  class cutter {
   public:
    POLYPATH_HOST_DEVICE constexpr explicit cutter(unsigned char* from) : from_(from) {}
    template <typename T>
    POLYPATH_HOST_DEVICE constexpr T* take(std::uint64_t count) {
      unsigned char* const at = from_ == nullptr ? nullptr : from_ + bytes_;
      bytes_ += (count * sizeof(T) + 15) / 16 * 16;
      return reinterpret_cast<T*>(at);
    }
    [[nodiscard]] POLYPATH_HOST_DEVICE constexpr std::uint64_t bytes() const { return bytes_; }

    unsigned char* from_;
    std::uint64_t bytes_ = 0;
  };

  POLYPATH_HOST_DEVICE static mpi_tables<std::uint32_t> cut(cutter& from, std::uint32_t capacity) {
    const std::uint64_t slots = std::uint64_t{1} << detail::log2_above(2 * capacity);
    mpi_tables<std::uint32_t> tables{};
    tables.keys = from.take<std::uint64_t>(slots);
    tables.all = from.take<mpi_tables<std::uint32_t>::counters>(1);
    tables.receive_counts = from.take<std::uint32_t>(slots + 1);
    tables.message_counts = from.take<std::uint32_t>(slots);
    tables.receive_begins = from.take<std::uint32_t>(slots + 1);
    tables.message_begins = from.take<std::uint32_t>(slots);
    tables.taken = from.take<std::uint32_t>(slots + capacity);
    tables.receives = from.take<std::uint32_t>(capacity);
    tables.messages = from.take<std::uint32_t>(std::uint64_t{detail::kPatterns} * capacity);
    tables.receive_slots = from.take<std::uint32_t>(capacity);
    tables.receive_ranks = from.take<std::uint32_t>(capacity);
    tables.message_slots = from.take<std::uint32_t>(std::uint64_t{detail::kPatterns} * capacity);
    tables.message_ranks = from.take<std::uint32_t>(std::uint64_t{detail::kPatterns} * capacity);
    tables.noted = from.take<std::uint32_t>(detail::max_noted_groups(capacity));
    tables.capacity = capacity;
    return tables;
  }
};

}  // namespace polypath::device
