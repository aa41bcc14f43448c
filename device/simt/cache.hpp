// What a block has loaded of global memory: by 16 bytes, of which a mask says which count.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace polypath::simt {

struct CachedBytes {
  std::array<std::byte, 16> bytes{};
  std::uint16_t valid = 0;
};

/// A hash table by address / 16 that loads fill, and that is emptied at each acquire: for nothing.
class Cache {
 public:
  [[nodiscard]] bool empty() const noexcept { return count_ == 0; }

  void clear() noexcept {
    if (count_ == 0) return;
    count_ = 0;
    if (++generation_ != 0) return;
    slots_ = {};  // old generations would count again
    generation_ = 1;
  }

  /// Null: it has none of these 16 bytes.
  [[nodiscard]] CachedBytes* find(std::uintptr_t granule) noexcept {
    if (count_ == 0) return nullptr;
    Slot& slot = slots_[place_of(granule)];
    return slot.generation == generation_ ? &slot.line : nullptr;
  }

  CachedBytes& operator[](std::uintptr_t granule) {
    if (2 * (count_ + 1) > slots_.size()) grow();
    Slot& slot = slots_[place_of(granule)];
    if (slot.generation != generation_) {
      slot = {granule, generation_, {}};
      ++count_;
    }
    return slot.line;
  }

 private:
  static constexpr std::size_t kFewestSlots = 64;

  struct Slot {
    std::uintptr_t granule = 0;
    std::uint32_t generation = 0;  ///< not that of the table: the slot is free
    CachedBytes line;
  };

  /// Where it is, or would be.
  [[nodiscard]] std::size_t place_of(std::uintptr_t granule) const noexcept {
    const std::size_t mask = slots_.size() - 1;
    std::size_t place = (granule * 0x9E3779B97F4A7C15U >> 32) & mask;
    while (slots_[place].generation == generation_ && slots_[place].granule != granule)
      place = (place + 1) & mask;
    return place;
  }

  void grow() {
    std::vector<Slot> before(slots_.empty() ? kFewestSlots : 2 * slots_.size());
    std::swap(before, slots_);
    for (const Slot& slot : before)
      if (slot.generation == generation_) slots_[place_of(slot.granule)] = slot;
  }

  std::vector<Slot> slots_;  // a power of two of them, half of them free
  std::size_t count_ = 0;
  std::uint32_t generation_ = 1;
};

}  // namespace polypath::simt
