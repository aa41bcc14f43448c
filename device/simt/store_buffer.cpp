#include "simt/store_buffer.hpp"

#include <algorithm>

namespace polypath::simt {

void StoreBuffer::add(StorePtr store) {
  store->place_in_block = all_.size();
  bytes_ += store->bytes;
  if (is_of_one_line(*store)) {
    if (++in_chains_ > chains_.size()) grow();
    Store*& chain = chains_[chain_of(store->to / kLineBytes)];
    store->next = std::exchange(chain, store.get());
    ++in_regions_[region_of(store->to)];
  } else {
    longer_.emplace(std::pair{store->to, store->serial}, store.get());
    longest_ = std::max(longest_, store->bytes);
  }
  all_.push_back(std::move(store));
}

void StoreBuffer::grow() {
  std::vector<Store*> before(std::max(kFewestChains, 2 * chains_.size()), nullptr);
  std::swap(before, chains_);
  for (Store* store : before)
    while (store != nullptr) {
      Store* const next = store->next;
      Store*& chain = chains_[chain_of(store->to / kLineBytes)];
      store->next = std::exchange(chain, store);
      store = next;
    }
}

void StoreBuffer::remove(Store& store) {
  bytes_ -= store.bytes;
  if (is_of_one_line(store)) {
    Store** link = &chains_[chain_of(store.to / kLineBytes)];
    while (*link != &store) link = &(*link)->next;
    *link = store.next;
    --in_chains_;
    --in_regions_[region_of(store.to)];
  } else {
    longer_.erase({store.to, store.serial});
    if (longer_.empty()) longest_ = 0;
  }
  const std::size_t place = store.place_in_block;
  all_[place] = std::move(all_.back());
  all_[place]->place_in_block = place;
  all_.pop_back();
}

bool StoreBuffer::may_be_in_chains(std::uintptr_t first, std::uintptr_t last) const noexcept {
  if (in_chains_ == 0) return false;
  if (last - first >= in_regions_.size() * kRegionBytes) return true;
  for (std::uintptr_t region = first / kRegionBytes; region <= last / kRegionBytes; ++region)
    if (in_regions_[region_of(region * kRegionBytes)] > 0) return true;
  return false;
}

void StoreBuffer::clear() { *this = {}; }

void StoreBuffer::find_overlapping(std::uintptr_t from, std::size_t bytes, std::uint64_t before,
                                   std::vector<Store*>& overlapping) const {
  overlapping.clear();
  if (bytes == 0 || all_.empty()) return;
  const auto consider = [&](Store& store) {
    if (store.serial < before && store.to < from + bytes && store.to + store.bytes > from)
      overlapping.push_back(&store);
  };
  if (may_be_in_chains(from, from + bytes - 1)) {
    const std::uintptr_t first = from / kLineBytes;
    const std::uintptr_t last = (from + bytes - 1) / kLineBytes;
    if (last - first >= all_.size()) {
      for (const StorePtr& store : all_)
        if (is_of_one_line(*store)) consider(*store);
    } else {
      for (std::uintptr_t line = first; line <= last; ++line)
        for (Store* store = chains_[chain_of(line)]; store != nullptr; store = store->next)
          if (store->to / kLineBytes == line) consider(*store);
    }
  }
  for (auto next = longer_.lower_bound({from > longest_ ? from - longest_ : 0, 0});
       next != longer_.end() && next->first.first < from + bytes; ++next)
    consider(*next->second);
  if (overlapping.size() > 1) std::ranges::sort(overlapping, {}, &Store::serial);
}

std::vector<StorePtr> StoreBuffer::overlapping(std::uintptr_t from, std::size_t bytes,
                                               std::uint64_t before) const {
  std::vector<Store*> overlapping;
  find_overlapping(from, bytes, before, overlapping);
  std::vector<StorePtr> held;
  held.reserve(overlapping.size());
  for (const Store* const store : overlapping) held.push_back(all_[store->place_in_block]);
  return held;
}

}  // namespace polypath::simt
