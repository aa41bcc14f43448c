// Memory of freed allocations, kept for later ones of this process: a page that is mapped anew
// costs some ten times as much as one that is written again.
#pragma once

#include <cstddef>
#include <list>
#include <mutex>
#include <optional>
#include <utility>

namespace polypath::sim {

/// Items with a capacity and a number of resident bytes. The oldest go when there is too much of
/// them. Any thread may use it. `Item` has capacity() and resident_bytes(); it frees its memory
/// when it is destroyed.
template <typename Item>
class Kept {
 public:
  Kept(std::size_t max_bytes, std::size_t max_items) noexcept
      : max_bytes_(max_bytes), max_items_(max_items) {}

  /// The smallest one with room for `bytes` that is not much larger; none if there is no such.
  std::optional<Item> take(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    auto best = items_.end();
    for (auto item = items_.begin(); item != items_.end(); ++item)
      if (item->capacity() >= bytes && item->capacity() / 2 <= bytes &&
          (best == items_.end() || item->capacity() <= best->capacity()))
        best = item;
    if (best == items_.end()) return std::nullopt;
    std::optional<Item> taken(std::move(*best));
    bytes_ -= taken->resident_bytes();
    items_.erase(best);
    return taken;
  }

  void keep(Item item) {
    if (item.resident_bytes() == 0 || item.resident_bytes() > max_bytes_) return;
    std::list<Item> dropped;  // freed without the lock
    const std::lock_guard lock(mutex_);
    bytes_ += item.resident_bytes();
    items_.push_back(std::move(item));
    while (bytes_ > max_bytes_ || items_.size() > max_items_) {
      bytes_ -= items_.front().resident_bytes();
      dropped.splice(dropped.end(), items_, items_.begin());
    }
  }

 private:
  const std::size_t max_bytes_;
  const std::size_t max_items_;
  std::mutex mutex_;
  std::list<Item> items_;  // the oldest first
  std::size_t bytes_ = 0;
};

}  // namespace polypath::sim
