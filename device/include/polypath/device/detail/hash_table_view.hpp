// A batch without order, in a table of keys: where it lies. C++17: shared by host and device.
#pragma once

#include <cstdint>

#include "polypath/device/detail/match_types.hpp"
#include "polypath/device/detail/source_partition_view.hpp"

namespace polypath::device {

struct alignas(16) table_slot {
  std::uint64_t key;
  std::uint32_t message;  ///< the first with this key
  std::uint32_t left;     ///< messages next to it; below 0 (as signed) when none is left
};

/// By the whole GPU.
struct table_view {
  match_batch batch;
  match_words* words;
  table_slot* slots;         ///< 1 << slots_log2: at least twice the messages, and 8
  std::uint32_t slots_log2;  ///< 3 to 31
  std::uint64_t seed;        ///< of the hashes; 0: by the clock

  /// Log2 of the slots for that many messages.
  [[nodiscard]] static POLYPATH_HOST_DEVICE constexpr std::uint32_t slots_log2_for(
      std::uint32_t messages) {
    // One more than the bits of messages - 1, without a loop over them: blocks ask for each table.
    std::uint32_t last = messages == 0 ? 0 : messages - 1;
    std::uint32_t log2 = 1;
    for (std::uint32_t step = 16; step > 0; step /= 2) {
      if (last >> step == 0) continue;
      last >>= step;
      log2 += step;
    }
    log2 += last;
    if (log2 < 3) log2 = 3;
    return log2;
  }
};

/// The memory of matching without order by the whole GPU.
struct hashed_workspace {
  static constexpr unsigned kPhases = 4;
  [[nodiscard]] static POLYPATH_HOST_DEVICE constexpr bool runs_in_one_warp(unsigned) {
    return false;
  }
  [[nodiscard]] static POLYPATH_HOST_DEVICE std::uint64_t bytes(std::uint32_t capacity) {
    return sizeof(match_words) + (sizeof(table_slot) << table_view::slots_log2_for(capacity));
  }
  [[nodiscard]] static POLYPATH_HOST_DEVICE table_view cut(unsigned char* at,
                                                           const match_batch& batch) {
    return {batch, reinterpret_cast<match_words*>(at),
            reinterpret_cast<table_slot*>(at + sizeof(match_words)),
            table_view::slots_log2_for(batch.message_count), 0};
  }
};

/// Memory of a warp or block, in its shared memory.
template <unsigned kCapacity>
struct hashed_storage {
  static_assert(kCapacity >= 32 && kCapacity <= 1024 && (kCapacity & (kCapacity - 1)) == 0,
                "a matcher of one block has room for 32 to 1024, a power of two");
  std::uint64_t seed;
  std::uint64_t keys[2 * kCapacity];
  std::uint32_t messages[2 * kCapacity];
  std::uint32_t left[2 * kCapacity];
  match_sums sums;
};

/// Seeds for the hashes of a batch of unique keys: sums of products with secret numbers, so that
/// no two keys are likelier to meet than others.
struct tag_seeds {
  std::uint64_t low;
  std::uint64_t high;
};
[[nodiscard]] POLYPATH_HOST_DEVICE constexpr tag_seeds tag_seeds_of(std::uint64_t seed) {
  tag_seeds seeds{};
  for (unsigned i = 0; i < 2; ++i) {
    seed += 0x9E3779B97F4A7C15U;
    std::uint64_t mixed = (seed ^ seed >> 30) * 0xBF58476D1CE4E5B9U;
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EBU;
    (i == 0 ? seeds.low : seeds.high) = (mixed ^ mixed >> 31) | 1;
  }
  return seeds;
}
/// Its upper half says which slots, the lower one has the tag.
[[nodiscard]] POLYPATH_HOST_DEVICE constexpr std::uint64_t tag_hash_of(std::uint64_t key,
                                                                       const tag_seeds& seeds) {
  return (key & 0xFFFFFFFF) * seeds.low + (key >> 32) * seeds.high;
}

/// Memory of a warp or block for unique keys.
template <unsigned kCapacity>
struct unique_storage {
  static_assert(kCapacity >= 32 && kCapacity <= 1024 && (kCapacity & (kCapacity - 1)) == 0,
                "a matcher of one block has room for 32 to 1024, a power of two");
  alignas(16) std::uint32_t slots[4 * kCapacity];
  std::uint64_t messages[kCapacity];  ///< bits of envelopes
  std::uint64_t receives[kCapacity];  ///< bits of envelopes; then the message that each takes
  std::uint16_t takers[kCapacity];    ///< of messages: a receive that takes it
  tag_seeds seeds;
  match_sums sums;
};

}  // namespace polypath::device
