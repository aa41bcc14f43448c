#include "registry/memory_table.hpp"

namespace polypath {

MemoryTable::Change MemoryTable::publish(const MemoryRecord& record) {
  Change change;
  const auto before = place_of_base_.find(record.base);
  if (before != place_of_base_.end() && entries_[before->second].record.handle != record.handle)
    change.cleared = withdraw(record.base);
  change.written = choose(record.handle);
  erase(change.written);
  entries_[change.written] = {record, ++publications_};
  place_of_base_[record.base] = change.written;
  if (change.cleared == change.written) change.cleared.reset();
  return change;
}

std::optional<std::uint32_t> MemoryTable::withdraw(std::uint64_t base) {
  const auto at = place_of_base_.find(base);
  if (at == place_of_base_.end()) return std::nullopt;
  const std::uint32_t place = at->second;
  erase(place);
  return place;
}

/// The handle's own place, else a free one, else the one that was written longest ago.
std::uint32_t MemoryTable::choose(const IpcHandle& handle) const {
  const std::uint32_t begin = bucket_of(handle) * kBucketPlaces;
  std::optional<std::uint32_t> unused;
  std::uint32_t oldest = begin;
  for (std::uint32_t place = begin; place < begin + kBucketPlaces; ++place) {
    const auto at = entries_.find(place);
    if (at == entries_.end()) {
      if (!unused) unused = place;
      continue;
    }
    if (at->second.record.handle == handle) return place;
    const auto eldest = entries_.find(oldest);
    if (eldest == entries_.end() || at->second.sequence < eldest->second.sequence) oldest = place;
  }
  return unused.value_or(oldest);
}

void MemoryTable::erase(std::uint32_t place) {
  const auto at = entries_.find(place);
  if (at == entries_.end()) return;
  place_of_base_.erase(at->second.record.base);
  entries_.erase(at);
}

}  // namespace polypath
