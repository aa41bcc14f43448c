// Handles that are never reused: a destroyed, foreign or made-up handle is recognised without
// touching memory that it might point to.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <concepts>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "failure.hpp"

namespace polypath::sim {

/// What threads may learn of a live object without the lock.
enum class Mark : std::uint32_t { none, pending, settled };

/// Objects of one kind after the opaque pointer type `Handle`. `kTag` tells the kinds apart.
/// All members but mark() are called under the driver's lock.
template <typename Handle, typename Object, std::uint16_t kTag>
class HandleTable {
 public:
  Handle add(std::unique_ptr<Object> object) {
    std::uint32_t index = 0;
    if (free_.empty()) {
      require(used_ < kBlock * kBlocks, CUDA_ERROR_OUT_OF_MEMORY);
      index = used_++;
      std::unique_ptr<Block>& block = owned_[index / kBlock];
      if (!block) {
        block = std::make_unique<Block>();
        blocks_[index / kBlock].store(block.get(), std::memory_order_release);
      }
    } else {
      index = free_.back();
      free_.pop_back();
    }
    Slot& slot = slot_at(index);
    ++slot.generation;
    slot.object = std::move(object);
    ++live_;
    return encode(slot.generation, index);
  }

  /// The object, or null when the handle is not a live one of this table.
  [[nodiscard]] Object* find(Handle handle) const noexcept {
    const auto [tag, generation, index] = decode(handle);
    if (tag != kTag || index >= used_) return nullptr;
    const Slot& slot = slot_at(index);
    return slot.generation == generation ? slot.object.get() : nullptr;
  }

  /// The object; throws Failure{code} when there is none.
  Object& get(Handle handle, CUresult code = CUDA_ERROR_INVALID_HANDLE) const {
    Object* const object = find(handle);
    require(object != nullptr, code);
    return *object;
  }

  void remove(Handle handle) {
    const std::uint32_t index = decode(handle).index;
    set_mark(handle, Mark::none);
    Slot& slot = slot_at(index);
    slot.object.reset();
    if (slot.generation < kLastGeneration) free_.push_back(index);
    --live_;
  }

  /// Removes all that `fit`.
  void remove_if(const std::predicate<const Object&> auto& fits) {
    for (std::uint32_t index = 0; index < used_; ++index) {
      const Slot& slot = slot_at(index);
      if (slot.object && fits(*slot.object)) remove(encode(slot.generation, index));
    }
  }

  [[nodiscard]] std::size_t live() const noexcept { return live_; }

  /// Sets the mark of a live object; it has Mark::none at first.
  void set_mark(Handle handle, Mark mark) noexcept {
    const auto [tag, generation, index] = decode(handle);
    slot_at(index).mark.store(generation << kMarkBits | static_cast<std::uint32_t>(mark),
                              std::memory_order_release);
  }

  /// Lock-free. Mark::none when the handle is not a live one of this table.
  [[nodiscard]] Mark mark(Handle handle) const noexcept {
    const auto [tag, generation, index] = decode(handle);
    if (tag != kTag || index / kBlock >= kBlocks) return Mark::none;
    const Block* const block = blocks_[index / kBlock].load(std::memory_order_acquire);
    if (block == nullptr) return Mark::none;
    const std::uint32_t mark = (*block)[index % kBlock].mark.load(std::memory_order_acquire);
    if (mark >> kMarkBits != generation) return Mark::none;
    return static_cast<Mark>(mark & ((1U << kMarkBits) - 1));
  }

 private:
  static constexpr std::uint32_t kBlock = 1024;
  static constexpr std::uint32_t kBlocks = 1024;
  static constexpr std::uint32_t kLastGeneration = (1U << 24) - 1;
  static constexpr int kMarkBits = 2;

  struct Slot {
    std::uint32_t generation = 0;  // of the last object; 24 bits of it are in the handle
    std::unique_ptr<Object> object;
    std::atomic<std::uint32_t> mark{0};  // with the generation that it is for
  };
  using Block = std::array<Slot, kBlock>;

  struct Decoded {
    std::uint16_t tag;
    std::uint32_t generation;
    std::uint32_t index;
  };

  // tag: 16 bits, generation: 24, index: 24. The tag makes the address one that no program can own.
  static Handle encode(std::uint32_t generation, std::uint32_t index) noexcept {
    return std::bit_cast<Handle>(std::uintptr_t{kTag} << 48 | std::uintptr_t{generation} << 24 |
                                 index);
  }
  static Decoded decode(Handle handle) noexcept {
    const auto bits = std::bit_cast<std::uintptr_t>(handle);
    return {static_cast<std::uint16_t>(bits >> 48),
            static_cast<std::uint32_t>(bits >> 24 & 0xffffff),
            static_cast<std::uint32_t>(bits & 0xffffff)};
  }

  Slot& slot_at(std::uint32_t index) const noexcept {
    return (*owned_[index / kBlock])[index % kBlock];
  }

  std::array<std::unique_ptr<Block>, kBlocks> owned_;
  std::array<std::atomic<Block*>, kBlocks> blocks_{};
  std::vector<std::uint32_t> free_;
  std::uint32_t used_ = 0;
  std::size_t live_ = 0;
};

}  // namespace polypath::sim
