// The shared memory of matching in MPI's order by a warp or block. C++17: shared by host and
// device.
#pragma once

#include <cstdint>

#include "polypath/device/envelope.hpp"

namespace polypath::device {

namespace detail {

/// Longer chains are not walked: their groups have bitmaps. A multiple of kSteps, which are walked
/// at once.
inline constexpr unsigned kLongChain = 28;
inline constexpr unsigned kSteps = 4;
/// Receives with wildcards of one round: more would share their rows, and find more of them out of
/// date.
inline constexpr unsigned kRound = 56;
/// So many choose with their rows loaded together; the last of a round with rows of none.
inline constexpr unsigned kRowsTogether = 8;

/// Where a key's slot is looked for first. A sender that does not know the seed cannot make keys
/// that meet: products with two numbers made of it, which is cheaper than first_slot_of.
class slot_hash {
 public:
  POLYPATH_HOST_DEVICE constexpr slot_hash(std::uint64_t seed, unsigned slots_log2)
      : one_((seed ^ 0x6A09E667F3BCC909U) * 0xBF58476D1CE4E5B9U | 1),
        other_((seed ^ 0xBB67AE8584CAA73BU) * 0x94D049BB133111EBU | 1),
        shift_(32 - slots_log2) {}
  [[nodiscard]] POLYPATH_HOST_DEVICE constexpr std::uint32_t operator()(std::uint64_t key) const {
    const std::uint64_t sum = one_ * static_cast<std::uint32_t>(key) + other_ * (key >> 32);
    return static_cast<std::uint32_t>(sum ^ sum >> 32) * 0x9E3779B1U >> shift_;
  }

 private:
  std::uint64_t one_;
  std::uint64_t other_;
  unsigned shift_;
};

}  // namespace detail

/// Room for `kCapacity` messages and as many receives.
template <unsigned kCapacity>
struct mpi_storage {
  static_assert(kCapacity >= 32 && kCapacity <= 1024 && (kCapacity & (kCapacity - 1)) == 0,
                "a matcher of one block has room for 32 to 1024, a power of two");
  static constexpr std::uint32_t kSlots = 2 * kCapacity;
  static constexpr std::uint32_t kWords = kCapacity / 32;  ///< of a bit for each
  static constexpr std::uint32_t kMaxLong = kCapacity / (detail::kLongChain + 1) + 1;

  /// Messages or receives by their keys: chains of indices, in any order; of long groups bitmaps.
  struct groups {
    std::uint32_t heads[kSlots];  ///< the first of a chain; kEnd; or above it, a long group
    /// The next of a chain, and in the upper half the rank in the group. After the end is the end.
    /// For a receive with a wildcard: the slot of its pattern.
    std::uint32_t links[kCapacity + 1];
    std::uint16_t slots[kCapacity];  ///< of its key, or kNoSlot
    std::uint32_t bits[kMaxLong][kWords];
    std::uint16_t before[kMaxLong][kWords];  ///< how many bits are before each word
    std::uint32_t longs;
  };
  static constexpr std::uint32_t kEnd = kCapacity;
  static constexpr std::uint32_t kNoSlot = 0xFFFF;
  static constexpr std::uint32_t kNothing = 0xFFFF;  ///< no index, no rank

  /// The choice of a receive with a wildcard: the bit of a message, and of which 32 messages; 0: it
  /// has none.
  struct alignas(8) choice {
    std::uint32_t bit;
    std::uint32_t word;
  };
  static constexpr std::uint32_t kRow = kWords + 1;  ///< such that rows meet in no bank
  /// A round of receives with wildcards: a bit for each message.
  struct alignas(16) round {
    /// By pattern of a receive, which has the row of one of its receives: what it accepts. The
    /// last one is that of none.
    std::uint32_t accepted[detail::kRound + 1][kRow];
    /// What receives between the wildcard before and this one take.
    std::uint32_t between[detail::kRound + detail::kRowsTogether - 1][kRow];
    std::uint32_t gone[kWords];  ///< messages that none of the round takes any more
    choice chosen[32];
  };
  union {
    alignas(16) std::uint64_t keys[kSlots];  ///< until all are entered
    round now;
  };
  alignas(16) groups receives;
  alignas(16) groups messages;
  std::uint16_t patterns[3][kCapacity];  ///< of each message, slots that accept it, or kNoPattern
  static constexpr std::uint32_t kNoPattern = kSlots;
  /// By message: one more than the receive that takes it if no other wildcard takes one; or kFree;
  /// kGone: one before all that come takes it; kTaken: one with a wildcard has.
  std::uint16_t limits[kCapacity];
  static constexpr std::uint32_t kFree = 0xFFFF;
  static constexpr std::uint32_t kGone = 1;
  static constexpr std::uint32_t kTaken = 0;
  /// By key: taken by wildcards; by pattern: one more than which wildcard it has the row of.
  alignas(16) std::uint16_t taken[kSlots + 8];
  std::uint16_t results[kCapacity];    ///< the message of each receive, or kNothing
  std::uint16_t wildcards[kCapacity];  ///< the receives that have them, in order
  std::uint32_t wildcard_bits[kWords];
  std::uint16_t wildcards_before[kWords];  ///< those of words in front
  std::uint32_t wildcard_count;
  std::uint32_t kinds;  ///< of patterns: a byte each, not 0 where there are such receives
  std::uint32_t matches;
  std::uint64_t reason;  ///< 0, or a match_status and in the lower half the index with it
};

}  // namespace polypath::device
