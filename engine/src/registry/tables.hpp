// Which places of the registry file hold what this process tells: pure decisions, without the file.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>

#include "registry/records.hpp"

namespace polypath {

/// Names a flight that was started; of none that was not.
struct FlightToken {
  std::uint64_t value = 0;  ///< 0: none
};

/// Not thread-safe.
class FlightTable {
 public:
  struct Entry {
    InFlightTransfer flight;
    std::uint64_t token = 0;  ///< 0: free
    bool published = false;   ///< written to the file
  };

  /// The lowest place that is free, or whose flight does not count any more; none when every one
  /// counts. A flight that is over by `now_ns` has no place either.
  FlightToken start(const InFlightTransfer& flight, std::uint64_t now_ns, bool published);
  /// What was in the place that is free now; nothing when the flight had lost it, or `token` is of
  /// none.
  std::optional<Entry> end(FlightToken token);

  [[nodiscard]] static std::size_t place_of(FlightToken token) noexcept {
    return token.value % kFlights;
  }
  /// By place.
  [[nodiscard]] const std::array<Entry, kFlights>& entries() const noexcept { return entries_; }

 private:
  std::array<Entry, kFlights> entries_;
  std::uint64_t starts_ = 0;
};

/// Not thread-safe. Handles are unique in it, and so are base addresses.
class MemoryTable {
 public:
  struct Entry {
    MemoryRecord record;
    std::uint64_t sequence = 0;
  };
  struct Change {
    std::optional<std::uint32_t>
        cleared;                ///< this place now holds nothing; written before `written`
    std::uint32_t written = 0;  ///< this one the record
  };

  /// Takes `record` in, in place of the one with its handle and of the one with its base address:
  /// memory that was freed and allocated again has another handle, and the old one means nothing.
  /// When its bucket is full, the bucket's oldest record leaves.
  Change publish(const MemoryRecord& record);
  /// The place that the record of this base address had.
  std::optional<std::uint32_t> withdraw(std::uint64_t base);

  /// By place.
  [[nodiscard]] const std::map<std::uint32_t, Entry>& entries() const noexcept { return entries_; }

 private:
  [[nodiscard]] std::uint32_t choose(const IpcHandle& handle) const;
  void erase(std::uint32_t place);

  std::map<std::uint32_t, Entry> entries_;
  std::unordered_map<std::uint64_t, std::uint32_t> place_of_base_;
  std::uint64_t publications_ = 0;
};

}  // namespace polypath
