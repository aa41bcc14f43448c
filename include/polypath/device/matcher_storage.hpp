// The shared memory of matching in MPI's order by a warp or block. C++17: shared by host and
// device.
#pragma once

#include <cstdint>

#include "polypath/device/envelope.hpp"

namespace polypath::device {

namespace detail {

/// Longer chains are not walked: their groups have bitmaps. A multiple of kSteps, which are walked
/// at once.
inline constexpr unsigned kLongChain = 24;
inline constexpr unsigned kSteps = 4;
/// Receives with wildcards of one round, and what each may choose among: rounds overlap by one, so
/// at most 31 are undecided when a receive's candidates are looked for.
inline constexpr unsigned kRound = 16;
inline constexpr unsigned kCandidates = 2 * kRound;

/// Where a key's slot is looked for first. Whoever does not know the seed cannot make keys that
/// meet: products with two numbers made of it, which is cheaper than first_slot_of.
class SlotHash {
 public:
  POLYPATH_HOST_DEVICE constexpr SlotHash(std::uint64_t seed, unsigned slots_log2)
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
  static constexpr std::uint32_t kMostLong = kCapacity / (detail::kLongChain + 1) + 1;

  /// Messages or receives by their keys: chains of indices, in any order; of long groups bitmaps.
  struct groups {
    std::uint32_t heads[kSlots];  ///< the first of a chain; kEnd; or above it, a long group
    /// The next of a chain, and in the upper half the rank in the group. Behind the end is the end.
    std::uint32_t links[kCapacity + 1];
    std::uint16_t slots[kCapacity];  ///< of its key, or kNoSlot
    std::uint32_t bits[kMostLong][kWords];
    std::uint16_t before[kMostLong][kWords];  ///< how many bits are before each word
    std::uint32_t longs;
  };
  static constexpr std::uint32_t kEnd = kCapacity;
  static constexpr std::uint32_t kNoSlot = 0xFFFF;
  static constexpr std::uint32_t kNothing = 0xFFFF;  ///< no index, no rank

  /// A message that a receive with a wildcard may take: two numbers a word.
  struct alignas(8) candidate {
    std::uint32_t slot_and_message;
    std::uint32_t limit_and_place;
    /// Of its key, or a place of its own behind the slots.
    [[nodiscard]] POLYPATH_HOST_DEVICE std::uint32_t slot() const {
      return slot_and_message & 0xFFFF;
    }
    [[nodiscard]] POLYPATH_HOST_DEVICE std::uint32_t message() const {
      return slot_and_message >> 16;
    }
    /// It is free while fewer of the key are taken by wildcards.
    [[nodiscard]] POLYPATH_HOST_DEVICE std::uint32_t limit() const {
      return limit_and_place & 0xFFFF;
    }
    /// place_of(message())
    [[nodiscard]] POLYPATH_HOST_DEVICE std::uint32_t place() const { return limit_and_place >> 16; }
  };
  /// Where a message lies in arrays of which a warp reads 32 messages a lane, eight at once: in a
  /// word are two that are 16 from each other.
  static constexpr std::uint32_t kStride = 8 * kWords + 8;  // such that lanes meet in no bank
  static constexpr std::uint32_t kPlaces = 4 * kStride;
  [[nodiscard]] POLYPATH_HOST_DEVICE static constexpr std::uint32_t place_of(std::uint32_t i) {
    return i % 16 / 4 * kStride + i / 32 * 8 + i % 4 * 2 + i % 32 / 16;
  }
  /// Of rounds of wildcards.
  struct sight {
    /// Of each message: 15 bits that are the same for all that a pattern of a kind accepts.
    alignas(16) std::uint16_t prints[3][kPlaces];
    candidate rows[2][detail::kRound][detail::kCandidates];
  };

  union {
    alignas(16) std::uint64_t keys[kSlots];  ///< until all are entered
    sight seen;
  };
  alignas(16) groups receives;
  alignas(16) groups messages;
  /// Of messages: one more than the receive that takes it where no wildcard does, or kFree; 0: a
  /// wildcard has.
  alignas(16) std::uint16_t limits[kPlaces];
  static constexpr std::uint32_t kFree = 0x7FFF;
  std::uint16_t taken[kSlots + kCapacity];  ///< by wildcards, of each key
  std::uint16_t results[kCapacity];         ///< the message of each receive, or kNothing
  std::uint16_t wildcards[kCapacity];       ///< the receives that have them, in order
  std::uint32_t wildcard_bits[kWords];
  std::uint32_t has_wildcards;
  std::uint32_t matches;
  std::uint64_t reason;  ///< 0, or a match_status and in the lower half the index with it
};

}  // namespace polypath::device
