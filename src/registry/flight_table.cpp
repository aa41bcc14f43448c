#include "registry/flight_table.hpp"

#include <algorithm>

namespace polypath {

FlightToken FlightTable::start(const Flight& flight, std::uint64_t now_ns) {
  if (flight.until_ns <= now_ns) return {};
  const auto at = std::ranges::find_if(entries_, [&](const Entry& entry) {
    return entry.token == 0 || entry.flight.until_ns <= now_ns;
  });
  if (at == entries_.end()) return {};
  const auto place = static_cast<std::uint64_t>(at - entries_.begin());
  *at = {flight, ++starts_ * kFlights + place};
  return {at->token};
}

std::optional<std::size_t> FlightTable::end(FlightToken token) {
  Entry& entry = entries_[place_of(token)];
  if (token.value == 0 || entry.token != token.value) return std::nullopt;
  entry = {};
  return place_of(token);
}

}  // namespace polypath
