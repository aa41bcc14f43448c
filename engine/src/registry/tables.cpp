#include "registry/tables.hpp"

#include <algorithm>
#include <utility>

namespace polypath {
FlightToken FlightTable::start(const InFlightTransfer& flight, std::uint64_t now_ns,
                               bool published) {
  if (flight.until_ns <= now_ns) return {};
  const auto at = std::ranges::find_if(entries_, [&](const Entry& entry) {
    return entry.token == 0 || entry.flight.until_ns <= now_ns;
  });
  if (at == entries_.end()) return {};
  const auto place = static_cast<std::uint64_t>(at - entries_.begin());
  *at = {flight, ++starts_ * kFlights + place, published};
  return {at->token};
}

std::optional<FlightTable::Entry> FlightTable::end(FlightToken token) {
  Entry& entry = entries_[place_of(token)];
  if (token.value == 0 || entry.token != token.value) return std::nullopt;
  return std::exchange(entry, {});
}

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
