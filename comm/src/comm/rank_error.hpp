// How all ranks come to the same end: each tells what went wrong with it, and all throw the same.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/error.hpp"

namespace polypath {

/// One line that fits into a record; longer ones are cut. Empty: nothing went wrong.
struct RankError {
  std::array<char, 512> text{};

  void set(std::string_view line) noexcept {
    const std::size_t bytes = std::min(line.size(), text.size() - 1);
    std::memcpy(text.data(), line.data(), bytes);
    text.at(bytes) = '\0';
  }
  /// Runs `body`, and keeps what it throws.
  template <typename Body>
  void catch_from(Body&& body) noexcept {
    try {
      body();
    } catch (const std::exception& error) {
      set(error.what());
    } catch (...) {
      set("unknown error");
    }
  }
  [[nodiscard]] std::string_view line() const noexcept {
    return {text.data(), ::strnlen(text.data(), text.size())};
  }
  explicit operator bool() const noexcept { return text.front() != '\0'; }
};

/// A record of nothing else.
struct Opened {
  RankError problem;
};

/// Throws CommunicatorError for the first rank that has a problem: the same on all ranks that have
/// the same records.
template <typename Record>
void throw_first_error(const std::vector<Record>& records, std::string_view what) {
  static_assert(std::is_trivially_copyable_v<Record>);
  for (std::size_t rank = 0; rank < records.size(); ++rank)
    if (records[rank].problem)
      throw CommunicatorError(
          fmt::format("{} failed on rank {}: {}", what, rank, records[rank].problem.line()));
}

}  // namespace polypath
