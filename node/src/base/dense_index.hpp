// Numbers keys of 64 bits in the order in which they come: 0, 1, 2, ... For tables that are filled
// once and looked up some thousand times; an entry costs no allocation of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace polypath {

/// Not thread-safe.
class DenseIndex {
 public:
  /// The number of the key; size() before the call for a new one.
  std::size_t at(std::uint64_t key) {
    if (slots_.size() < 2 * (size_ + 1)) grow();
    Slot& slot = slots_[place(key)];
    if (slot.number == kFree) slot = {key, size_++};
    return slot.number;
  }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  static constexpr std::size_t kFree = ~std::size_t{0};
  static constexpr std::size_t kFirstSlots = 64;
  struct Slot {
    std::uint64_t key = 0;
    std::size_t number = kFree;
  };

  /// Where the key is, or where it goes: linear probing from its Fibonacci hash.
  [[nodiscard]] std::size_t place(std::uint64_t key) const noexcept {
    const std::size_t mask = slots_.size() - 1;
    const std::uint64_t hash = (key ^ key >> 32) * 0x9e3779b97f4a7c15;
    std::size_t at = (hash ^ hash >> 32) & mask;
    while (slots_[at].number != kFree && slots_[at].key != key) at = (at + 1) & mask;
    return at;
  }

  void grow() {
    std::vector<Slot> old(slots_.empty() ? kFirstSlots : 2 * slots_.size());
    old.swap(slots_);
    for (const Slot& slot : old)
      if (slot.number != kFree) slots_[place(slot.key)] = slot;
  }

  std::vector<Slot> slots_;  // a power of two
  std::size_t size_ = 0;
};

}  // namespace polypath
