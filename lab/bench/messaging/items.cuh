// Items that carry their ids, and the counts of items that arrived.
#pragma once

#include <cstdint>

#include "polypath/device/scope.cuh"
#include "queue_bench.h"
#include "simt/platform.cuh"

namespace messaging_bench {

namespace device = polypath::device;
namespace simt = polypath::simt;

/// The first two words are the id, the others follow from it.
template <unsigned kWords>
struct Item {
  std::uint32_t words[kWords];
};

SIMT_DEVICE std::uint32_t word_of(std::uint64_t id, unsigned place) {
  const std::uint32_t mixed = static_cast<std::uint32_t>(id ^ id >> 32) * 0x9E3779B9U;
  return (mixed ^ mixed >> 15) + place * 0x85EBCA6BU;
}
template <unsigned kWords>
SIMT_DEVICE Item<kWords> make_item(std::uint64_t id) {
  Item<kWords> item;
  item.words[0] = static_cast<std::uint32_t>(id);
  item.words[1] = static_cast<std::uint32_t>(id >> 32);
  for (unsigned i = 2; i < kWords; ++i) item.words[i] = word_of(id, i);
  return item;
}
template <unsigned kWords>
SIMT_DEVICE std::uint64_t id_of(const Item<kWords>& item) {
  return item.words[0] | std::uint64_t{item.words[1]} << 32;
}

/// The counts of one thread; added to the tally once, at the end.
class Count {
 public:
  template <unsigned kWords>
  SIMT_DEVICE void add(const Item<kWords>& item) {
    const std::uint64_t id = id_of(item);
    bool is_right = true;
    for (unsigned i = 2; i < kWords; ++i) is_right = is_right && item.words[i] == word_of(id, i);
    ++items_;
    sum_ += id;
    wrong_ += is_right ? 0 : 1;
  }
  SIMT_DEVICE void wrong() { ++wrong_; }
  SIMT_DEVICE void write(Tally* tally) const {
    device::fetch_add<device::device_scope>(&tally->items, items_);
    device::fetch_add<device::device_scope>(&tally->sum_of_ids, sum_);
    device::fetch_add<device::device_scope>(&tally->wrong, wrong_);
  }

 private:
  std::uint64_t items_ = 0;
  std::uint64_t sum_ = 0;
  std::uint64_t wrong_ = 0;
};

}  // namespace messaging_bench
