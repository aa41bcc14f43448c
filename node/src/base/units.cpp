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
constexpr int kMaxDecimals = 6;  // this number of decimals of a TiB fits 64 bits

struct Suffix {
  char letter;
  std::uint64_t bytes;
};
constexpr std::array<Suffix, 4> kSuffixes{{{'T', kTiB}, {'G', kGiB}, {'M', kMiB}, {'K', kKiB}}};

/// Bytes of "", "B", "K", "KB", "KiB", "m", ...; 0 when there is no such suffix.
std::uint64_t suffix_bytes(std::string_view text) {
  std::string lower;
  for (const unsigned char c : text) lower += static_cast<char>(std::tolower(c));
  if (lower.empty() || lower == "b") return 1;
  if (lower.size() != 1 && lower.substr(1) != "b" && lower.substr(1) != "ib") return 0;
  for (const Suffix& suffix : kSuffixes)
    if (std::tolower(suffix.letter) == lower[0]) return suffix.bytes;
  return 0;
}

}  // namespace

std::uint64_t parse_bytes(std::string_view text) {
  const char* const end = text.data() + text.size();
  std::uint64_t whole = 0;
  auto [rest, problem] = std::from_chars(text.data(), end, whole);
  bool is_size = rest != text.data();
  // After the point: digits, over a power of ten.
  std::uint64_t digits = 0;
  std::uint64_t ten = 1;
  if (is_size && rest != end && *rest == '.') {
    const char* const first = ++rest;
    for (; rest != end && *rest >= '0' && *rest <= '9' && rest - first < kMaxDecimals; ++rest) {
      digits = 10 * digits + static_cast<std::uint64_t>(*rest - '0');
      ten *= 10;
    }
    is_size = rest != first;
  }
  while (is_size && rest != end && *rest == ' ') ++rest;
  const std::uint64_t unit =
      is_size ? suffix_bytes({rest, static_cast<std::size_t>(end - rest)}) : 0;
  if (unit == 0) {
    throw InvalidArgument(fmt::format(
        "'{}' is not a size: write bytes, or a number with K, M, G or T, such as 64M or 1.5GB "
        "(powers of 1024)",
        text));
  }
  if (digits * unit % ten != 0)
    throw InvalidArgument(fmt::format("size '{}' is no whole number of bytes", text));
  const std::uint64_t behind = digits * unit / ten;
  if (problem != std::errc{} || whole > kLargest / unit || whole * unit > kLargest - behind)
    throw InvalidArgument(fmt::format("size '{}' is too large: at most 2^63 bytes", text));
  return whole * unit + behind;
}

std::string format_bytes(std::uint64_t bytes) {
  for (const Suffix& suffix : kSuffixes)
    if (bytes != 0 && bytes % suffix.bytes == 0)
      return fmt::format("{}{}", bytes / suffix.bytes, suffix.letter);
  return fmt::format("{}", bytes);
}

}  // namespace polypath
