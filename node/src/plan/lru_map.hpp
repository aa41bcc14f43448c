// A map that keeps what was used most recently, up to a weight.
#pragma once

#include <cstddef>
#include <iterator>
#include <list>
#include <unordered_map>
#include <utility>

namespace polypath {

/// Where `Hash` and `Equal` are transparent, values are found by a view of the key as well. Not
/// thread-safe.
template <typename Key, typename Value, typename Hash, typename Equal>
class LruMap {
 public:
  explicit LruMap(std::size_t max_weight) : max_weight_(max_weight) {}

  /// The value, which is the most recent one from now on, or null.
  template <typename View>
  const Value* find(const View& key) {
    const auto it = places_.find(key);
    if (it == places_.end()) return nullptr;
    order_.splice(order_.begin(), order_, it->second);
    return &it->second->value;
  }

  struct Entry {
    Key key;
    Value value;
    std::size_t weight = 0;
  };
  /// Puts `value` in the place of the one with that key, if any. What is taken out for it, which
  /// may be slow to destroy, is the caller's.
  std::list<Entry> put(const Key& key, Value value, std::size_t weight) {
    std::list<Entry> out;
    if (const auto old = places_.find(key); old != places_.end()) take(old->second, out);
    order_.push_front({key, std::move(value), weight});
    places_.emplace(key, order_.begin());
    weight_ += weight;
    while (weight_ > max_weight_ && order_.size() > 1) take(std::prev(order_.end()), out);
    return out;
  }

  /// Takes out all with such a key.
  template <typename Predicate>
  void erase_if(const Predicate& matches) {
    std::list<Entry> out;
    for (auto place = order_.begin(); place != order_.end();) {
      const auto next = std::next(place);
      if (matches(place->key)) take(place, out);
      place = next;
    }
  }

  void clear() {
    places_.clear();
    order_.clear();
    weight_ = 0;
  }

  [[nodiscard]] std::size_t size() const noexcept { return order_.size(); }
  [[nodiscard]] std::size_t weight() const noexcept { return weight_; }

 private:
  using Place = typename std::list<Entry>::iterator;

  void take(Place place, std::list<Entry>& out) {
    weight_ -= place->weight;
    places_.erase(place->key);
    out.splice(out.end(), order_, place);
  }

  std::size_t max_weight_;
  std::size_t weight_ = 0;
  std::list<Entry> order_;  // most recent first
  std::unordered_map<Key, Place, Hash, Equal> places_;
};

}  // namespace polypath
