// Stores of a block that others do not see yet, found by the bytes that they are for.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "simt/held.hpp"

namespace polypath::simt {

struct Block;
struct Thread;

/// What one thread has stored between two barriers.
struct Batch {
  std::size_t outstanding = 0;  ///< stores of it that have not arrived
  std::uint64_t mark = 0;       ///< of the latest walk that met it
  std::size_t holders = 0;      ///< as Held has it
};
using BatchPtr = Held<Batch>;

/// A thread that waits until `count` stores have arrived.
struct Fence {
  Thread* thread;
  std::size_t remaining = 0;
};

/// A store, or an addition, under way to where all see it.
struct Store {
  Block* block = nullptr;
  BatchPtr batch;
  std::uint64_t serial = 0;
  std::uintptr_t to = 0;
  std::byte* at = nullptr;  ///< the bytes after `to`
  std::size_t bytes = 0;
  bool adds = false;
  bool has_arrived = false;
  std::size_t place = 0;           ///< among those under way, in a machine that is not timed
  std::size_t place_in_block = 0;  ///< in StoreBuffer
  Store* next = nullptr;           ///< in StoreBuffer
  std::array<std::byte, 16> small{};
  std::unique_ptr<std::byte[]> large;
  std::vector<std::shared_ptr<Fence>> fences;
  std::size_t holders = 0;  ///< as Held has it

  [[nodiscard]] const std::byte* value() const noexcept {
    return large ? large.get() : small.data();
  }
};
using StorePtr = Held<Store>;

/// Most are of a few bytes, in one line of 64: those lie in a hash table by lines, longer ones
/// in a tree. A store is in at most one StoreBuffer.
class StoreBuffer {
 public:
  void add(StorePtr store);
  /// The caller holds the store.
  void remove(Store& store);
  void clear();

  [[nodiscard]] bool empty() const noexcept { return all_.empty(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// In no order.
  [[nodiscard]] const std::vector<StorePtr>& all() const noexcept { return all_; }
  /// Replaces `overlapping` by the stores that overlap the range and have serials less than
  /// `before`, by their serials.
  void find_overlapping(std::uintptr_t from, std::size_t bytes, std::uint64_t before,
                        std::vector<Store*>& overlapping) const;
  /// As find_overlapping(), held.
  [[nodiscard]] std::vector<StorePtr> overlapping(std::uintptr_t from, std::size_t bytes,
                                                  std::uint64_t before = UINT64_MAX) const;

 private:
  static constexpr std::uintptr_t kLineBytes = 32;
  static constexpr std::size_t kFewestChains = 64;
  static constexpr std::uintptr_t kRegionBytes = std::uintptr_t{64} << 10;

  static bool is_of_one_line(const Store& store) noexcept {
    return store.to / kLineBytes == (store.to + store.bytes - 1) / kLineBytes;
  }
  /// The chain of the stores of the line, and of others.
  [[nodiscard]] std::size_t chain_of(std::uintptr_t line) const noexcept {
    return (line * 0x9E3779B97F4A7C15U >> 32) & (chains_.size() - 1);
  }
  void grow();
  static std::size_t region_of(std::uintptr_t address) noexcept {
    return address / kRegionBytes * 0x9E3779B97F4A7C15U >> 58;
  }
  /// False: there is none in the chains.
  [[nodiscard]] bool may_be_in_chains(std::uintptr_t first, std::uintptr_t last) const noexcept;

  std::vector<StorePtr> all_;
  std::size_t bytes_ = 0;
  std::vector<Store*> chains_;  // a power of two of them; of those in one line
  std::size_t in_chains_ = 0;
  std::array<std::uint32_t, 64> in_regions_{};  // of those in the chains; regions share counts
  std::map<std::pair<std::uintptr_t, std::uint64_t>, Store*> longer_;  // by address and serial
  std::size_t longest_ = 0;                                            // of those in longer_
};

}  // namespace polypath::simt
