// A hash table of keys of 64 bits, of a batch: it is cleared, then entered into, then looked into;
// nothing is taken out. In shared memory, or in memory of the GPU.
//
// A key has eight neighbouring slots (a line of 128 bytes of the GPU's memory), tried from one of
// them on in a circle; then eight others, by another hash, and so on. Keys that share the first
// eight do not share the next, and a word of 64 bits is too short to make many that share three or
// four: no search is long, for any keys. After kLevels hashes all slots are tried.
#pragma once

#include <cstdint>

#include "polypath/device/detail/hash_table_view.hpp"
#include "polypath/device/detail/mutants.hpp"
#include "polypath/device/detail/table_memory.cuh"
#include "polypath/device/platform.cuh"

namespace polypath::device {

namespace detail {

inline constexpr std::uint64_t kNoKey64 = ~std::uint64_t{0};
inline constexpr std::uint32_t kNoSlot = 0xFFFFFFFF;

/// Goes along the slots of a key until `is_end(slot)`; returns that one, or kNoSlot.
/// `first_of(level)`: a slot of `kTogether` neighbours, the first of them to be tried.
template <unsigned kTogether, typename FirstOf, typename IsEnd>
POLYPATH_DEVICE std::uint32_t walk_slots(std::uint32_t slots, const FirstOf& first_of,
                                         const IsEnd& is_end) {
  constexpr unsigned kLevels = 8;
  POLYPATH_NO_UNROLL
  for (unsigned level = 0; level < kLevels; ++level) {
    const std::uint32_t first = first_of(level);
    POLYPATH_NO_UNROLL
    for (unsigned i = 0; i < kTogether; ++i) {
      const std::uint32_t slot = (first & ~(kTogether - 1)) | ((first + i) & (kTogether - 1));
      if (is_end(slot)) return slot;
    }
  }
  POLYPATH_NO_UNROLL
  for (std::uint32_t slot = 0; slot < slots; ++slot)
    if (is_end(slot)) return slot;
  return kNoSlot;
}

/// What one slot holds besides its key, and where, in shared memory: apart, so that neighbours in a
/// warp meet in fewer banks.
class shared_slots {
 public:
  using Place = in_shared;
  POLYPATH_DEVICE shared_slots(std::uint64_t* keys, std::uint32_t* messages, std::uint32_t* left,
                               unsigned slots_log2)
      : keys_(keys), messages_(messages), left_(left), slots_log2_(slots_log2) {}
  [[nodiscard]] POLYPATH_DEVICE unsigned slots_log2() const { return slots_log2_; }
  [[nodiscard]] POLYPATH_DEVICE std::uint64_t* key(std::uint32_t slot) const {
    return keys_ + slot;
  }
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t* message(std::uint32_t slot) const {
    return messages_ + slot;
  }
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t* left(std::uint32_t slot) const {
    return left_ + slot;
  }
  POLYPATH_DEVICE void clear(std::uint32_t slot) const {
    keys_[slot] = kNoKey64;
    POLYPATH_MUTANT_OMITS(hash_mutant::counts_not_cleared)
    left_[slot] = 0;
  }
  /// After all entries.
  [[nodiscard]] POLYPATH_DEVICE table_slot get(std::uint32_t slot) const {
    return {keys_[slot], messages_[slot], 0};
  }

 private:
  std::uint64_t* keys_;
  std::uint32_t* messages_;
  std::uint32_t* left_;
  unsigned slots_log2_;
};

/// The same in memory of the GPU: all of a slot in one access.
class global_slots {
 public:
  using Place = in_global;
  POLYPATH_DEVICE global_slots(table_slot* slots, unsigned slots_log2)
      : slots_(slots), slots_log2_(slots_log2) {}
  [[nodiscard]] POLYPATH_DEVICE unsigned slots_log2() const { return slots_log2_; }
  [[nodiscard]] POLYPATH_DEVICE std::uint64_t* key(std::uint32_t slot) const {
    return &slots_[slot].key;
  }
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t* message(std::uint32_t slot) const {
    return &slots_[slot].message;
  }
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t* left(std::uint32_t slot) const {
    return &slots_[slot].left;
  }
  POLYPATH_DEVICE void clear(std::uint32_t slot) const {
    store(slots_ + slot, table_slot{kNoKey64, 0, 0});
  }
  [[nodiscard]] POLYPATH_DEVICE table_slot get(std::uint32_t slot) const {
    return load(slots_ + slot);
  }

 private:
  table_slot* slots_;
  unsigned slots_log2_;
};

/// Slots: at least 8, and at least twice the keys.
template <typename Slots>
class key_table {
  using Place = typename Slots::Place;

 public:
  POLYPATH_DEVICE key_table(const Slots& slots, std::uint64_t seed) : slots_(slots), seed_(seed) {}

  [[nodiscard]] POLYPATH_DEVICE const Slots& slots() const { return slots_; }
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t size() const { return 1U << slots_.slots_log2(); }

  /// The slot of the key, entered unless it was there; `is_new`: by this thread.
  /// `kLooksFirst`: before it asks for a slot; where many threads enter one key.
  template <bool kLooksFirst>
  POLYPATH_DEVICE std::uint32_t enter(std::uint64_t key, bool& is_new) const {
    return walk(key, [&](std::uint32_t slot) {
      std::uint64_t* const at = slots_.key(slot);
      std::uint64_t current = kLooksFirst ? Place::peek(at) : kNoKey64;
      if (current == kNoKey64) {
        POLYPATH_MUTANT(hash_mutant::entered_unasked, current = Place::peek(at); sleep_ns(0))
        POLYPATH_MUTANT(hash_mutant::entered_unasked, if (current == kNoKey64) Place::put(at, key))
        POLYPATH_MUTANT_OMITS(hash_mutant::entered_unasked)
        current = Place::exchange(at, kNoKey64, key);
      }
      is_new = current == kNoKey64;
      return is_new || is_same(current, key);
    });
  }
  /// The slot of the key, and what is in it; kNoSlot: there is none.
  POLYPATH_DEVICE std::uint32_t find(std::uint64_t key, table_slot& what) const {
    bool is_there = false;
    const std::uint32_t slot = walk(key, [&](std::uint32_t at) {
      what = slots_.get(at);
      is_there = is_same(what.key, key);
      POLYPATH_MUTANT(hash_mutant::first_slot_alone, return true)
      return is_there || what.key == kNoKey64;
    });
    return is_there ? slot : kNoSlot;
  }

 private:
  POLYPATH_DEVICE static bool is_same(std::uint64_t first, std::uint64_t other) {
    POLYPATH_MUTANT(hash_mutant::low_half_alone, return (first ^ other) << 32 == 0)
    return first == other;
  }
  template <typename IsEnd>
  POLYPATH_DEVICE std::uint32_t walk(std::uint64_t key, const IsEnd& is_end) const {
    return walk_slots<8>(
        size(),
        [&](unsigned level) { return first_slot_of(key, seed_, level, slots_.slots_log2()); },
        is_end);
  }

  Slots slots_;
  std::uint64_t seed_;
};

}  // namespace detail
}  // namespace polypath::device
