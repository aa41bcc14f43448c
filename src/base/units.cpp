#include "base/units.hpp"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <charconv>
#include <string>

#include "base/error.hpp"

namespace polypath {
namespace {

constexpr std::uint64_t kLargest = std::uint64_t{1} << 63;

struct Suffix {
  char letter;
  std::uint64_t bytes;
};
constexpr std::array<Suffix, 3> kSuffixes{{{'G', kGiB}, {'M', kMiB}, {'K', kKiB}}};

/// Bytes of "", "K", "KiB", "m", ...; 0 when there is no such suffix.
std::uint64_t suffix_bytes(std::string_view text) {
  if (text.empty()) return 1;
  std::string lower;
  for (const unsigned char c : text) lower += static_cast<char>(std::tolower(c));
  if (lower.size() != 1 && lower.substr(1) != "ib") return 0;
  for (const Suffix& suffix : kSuffixes)
    if (std::tolower(suffix.letter) == lower[0]) return suffix.bytes;
  return 0;
}

}  // namespace

std::uint64_t parse_bytes(std::string_view text) {
  const char* const end = text.data() + text.size();
  std::uint64_t count = 0;
  const auto [rest, problem] = std::from_chars(text.data(), end, count);
  const std::uint64_t unit =
      rest == text.data() ? 0 : suffix_bytes({rest, static_cast<std::size_t>(end - rest)});
  if (unit == 0) {
    throw InvalidArgument(
        fmt::format("'{}' is not a size: write bytes, or a number with K, M or G (64M)", text));
  }
  if (problem != std::errc{} || count > kLargest / unit)
    throw InvalidArgument(fmt::format("size '{}' is too large: at most 2^63 bytes", text));
  return count * unit;
}

std::string format_bytes(std::uint64_t bytes) {
  for (const Suffix& suffix : kSuffixes)
    if (bytes != 0 && bytes % suffix.bytes == 0)
      return fmt::format("{}{}", bytes / suffix.bytes, suffix.letter);
  return fmt::format("{}", bytes);
}

}  // namespace polypath
