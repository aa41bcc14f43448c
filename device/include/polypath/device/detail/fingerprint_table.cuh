// A hash table of messages with keys of 64 bits, each of which comes once: in shared memory, a word
// of 32 bits a slot. It has the message's index and a tag, 20 bits of a hash of the key: a tag that
// differs decides, and where one is the same the key itself is looked at. A key has four
// neighbouring slots, which are looked at together, then four others, by other hashes, as in
// key_table.cuh.
#pragma once

#include <cstdint>

#include "polypath/device/detail/key_table.cuh"
#include "polypath/device/detail/mutants.hpp"

namespace polypath::device::detail {

class fingerprint_table {
 public:
  /// Slots: at least 8, and twice the messages; better four times. `keys`: of all messages, which
  /// others see before one is entered.
  POLYPATH_DEVICE fingerprint_table(std::uint32_t* slots, const std::uint64_t* keys,
                                    unsigned slots_log2, const tag_seeds& seeds)
      : slots_(slots), keys_(keys), slots_log2_(slots_log2), seeds_(seeds) {}

  /// By `size` threads with their ranks.
  POLYPATH_DEVICE static void clear(std::uint32_t* slots, unsigned slots_log2, std::uint32_t rank,
                                    std::uint32_t size) {
    POLYPATH_MUTANT(hash_mutant::counts_not_cleared, return)
    auto* const fours = reinterpret_cast<Four*>(slots);
    for (std::uint32_t i = rank; i < 1U << slots_log2 >> 2; i += size) fours[i] = Four{};
  }
  /// Puts a message where its search begins. If other threads do so too, the last one stays.
  POLYPATH_DEVICE void put(std::uint32_t message) const {
    const std::uint64_t key = keys_[message];
    const std::uint64_t hash = tag_hash_of(key, seeds_);
    slots_[first_slot(key, hash, 0)] = word_of(hash) | message;
  }
  /// After all that are put, whether it is this one that stayed.
  [[nodiscard]] POLYPATH_DEVICE bool has_stayed(std::uint32_t message) const {
    const std::uint64_t key = keys_[message];
    const std::uint64_t hash = tag_hash_of(key, seeds_);
    POLYPATH_MUTANT(hash_mutant::entered_unasked, return true)
    return slots_[first_slot(key, hash, 0)] == (word_of(hash) | message);
  }
  /// Enters a message; false: there is one with its key.
  [[nodiscard]] POLYPATH_DEVICE bool enter(std::uint32_t message) const {
    const std::uint64_t key = keys_[message];
    const std::uint64_t hash = tag_hash_of(key, seeds_);
    const std::uint32_t word = word_of(hash) | message;
    std::uint32_t content = place<false>(key, hash, word);
    if (content == 0) return true;
    if (!has_key(content, key))
      content = place<true>(key, hash, word);  // another key with this tag
    return content == 0;
  }
  /// After all entries: the message of a key, or kNone.
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t find(std::uint64_t key) const {
    const std::uint64_t hash = tag_hash_of(key, seeds_);
    const std::uint32_t word = word_of(hash);
    const std::uint32_t begin = first_slot(key, hash, 0) & ~(kTogether - 1);
    const Four four = reinterpret_cast<const Four*>(slots_)[begin / kTogether];
    std::uint32_t content = 0;
    bool has_room = false;
    POLYPATH_UNROLL
    for (unsigned i = 0; i < kTogether; ++i) {
      has_room = has_room || four.words[i] == 0;
      if (has_tag(four.words[i], word)) content = four.words[i];
    }
    POLYPATH_MUTANT(hash_mutant::first_slots_alone, has_room = true)
    if (content == 0 && has_room) return kNone;
    if (content == 0 || !has_key(content, key)) content = search(key, hash, word);
    return content == 0 ? kNone : content & kIndices;
  }

 private:
  static constexpr unsigned kTogether = 4;
  // A word: 10 bits of index, that it is used, and the tag.
  static constexpr std::uint32_t kIndices = 0x3FF;
  static constexpr std::uint32_t kUsed = 0x400;
  static constexpr std::uint32_t kTags = 0xFFFFF800;
  struct alignas(16) Four {
    std::uint32_t words[kTogether];
  };

  POLYPATH_DEVICE static std::uint32_t word_of(std::uint64_t hash) {
    return (static_cast<std::uint32_t>(hash) & kTags) | kUsed;
  }
  POLYPATH_DEVICE static bool has_tag(std::uint32_t content, std::uint32_t word) {
    return ((content ^ word) & (kTags | kUsed)) == 0;
  }
  [[nodiscard]] POLYPATH_DEVICE bool has_key(std::uint32_t content, std::uint64_t key) const {
    POLYPATH_MUTANT(hash_mutant::tag_alone, return true)
    return keys_[content & kIndices] == key;
  }
  [[nodiscard]] POLYPATH_DEVICE bool is_same(std::uint32_t content, std::uint32_t word,
                                             std::uint64_t key) const {
    return has_tag(content, word) && has_key(content, key);
  }
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t first_slot(std::uint64_t key, std::uint64_t hash,
                                                         unsigned level) const {
    return level == 0 ? static_cast<std::uint32_t>(hash >> 32) >> (32 - slots_log2_)
                      : first_slot_of(key, seeds_.low, level, slots_log2_);
  }
  template <typename IsEnd>
  POLYPATH_DEVICE std::uint32_t walk(std::uint64_t key, std::uint64_t hash,
                                     const IsEnd& is_end) const {
    return walk_slots<kTogether>(
        1U << slots_log2_, [&](unsigned level) { return first_slot(key, hash, level); }, is_end);
  }
  /// Puts the word into the first empty slot, and returns 0; or returns what is in the way: a word
  /// with the same tag, or, `kByKey`, with the same key.
  template <bool kByKey>
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t place(std::uint64_t key, std::uint64_t hash,
                                                    std::uint32_t word) const {
    std::uint32_t content = 0;
    walk(key, hash, [&](std::uint32_t slot) {
      content = in_shared::exchange(slots_ + slot, 0U, word);
      return content == 0 || (kByKey ? is_same(content, word, key) : has_tag(content, word));
    });
    return content;
  }
  /// A key's word, or 0.
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t search(std::uint64_t key, std::uint64_t hash,
                                                     std::uint32_t word) const {
    std::uint32_t content = 0;
    const std::uint32_t slot = walk(key, hash, [&](std::uint32_t at) {
      content = slots_[at];
      return content == 0 || is_same(content, word, key);
    });
    return slot == kNoSlot ? 0 : content;
  }

  std::uint32_t* slots_;
  const std::uint64_t* keys_;
  unsigned slots_log2_;
  tag_seeds seeds_;
};

}  // namespace polypath::device::detail
