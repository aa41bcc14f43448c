// Which place of the registry file holds which flight of this process: a pure decision, without the file.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "registry/layout.hpp"

namespace polypath {

/// Names a flight that was started; of none that was not.
struct FlightToken {
  std::uint64_t value = 0;  ///< 0: none
};

/// Not thread-safe.
class FlightTable {
 public:
  struct Entry {
    Flight flight;
    std::uint64_t token = 0;  ///< 0: free
  };

  /// The lowest place that is free, or whose flight does not count any more; none when every one counts.
  /// A flight that is over by `now_ns` has no place either.
  FlightToken start(const Flight& flight, std::uint64_t now_ns);
  /// The place that is free now; none when the flight had lost it, or `token` is of none.
  std::optional<std::size_t> end(FlightToken token);

  [[nodiscard]] static std::size_t place_of(FlightToken token) noexcept {
    return token.value % kFlights;
  }
  /// By place.
  [[nodiscard]] const std::array<Entry, kFlights>& entries() const noexcept { return entries_; }

 private:
  std::array<Entry, kFlights> entries_;
  std::uint64_t starts_ = 0;
};

}  // namespace polypath
