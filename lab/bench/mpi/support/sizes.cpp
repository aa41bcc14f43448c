#include "sizes.hpp"

#include <fmt/format.h>

#include <charconv>

#include "usage_error.hpp"

namespace mpi_bench {
namespace {

/// Reads a number from the begin of `text` and takes it off; false where there is none.
template <typename Number>
bool take_number(std::string_view& text, Number& number) noexcept {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

}  // namespace

std::size_t parse_size(std::string_view option, std::string_view text) {
  constexpr std::size_t kLargest = std::size_t{1} << 40;
  std::string_view rest = text;
  std::size_t number = 0;
  if (take_number(rest, number) && rest.size() <= 1 && number <= kLargest) {
    const std::size_t unit = rest.empty() ? 0 : std::string_view("KMG").find(rest[0]);
    const std::size_t shift = rest.empty() ? 0 : 10 * (unit + 1);
    if (unit != std::string_view::npos && number > 0 && number <= kLargest >> shift)
      return number << shift;
  }
  throw UsageError(fmt::format("{} '{}' is not a size: 1 to 1024G bytes, such as 4096, 64K or 1M",
                               option, text));
}

std::vector<std::size_t> parse_sizes(std::string_view option, std::string_view text) {
  std::vector<std::size_t> sizes;
  for (const std::string_view part : split(text)) {
    const std::size_t colon = part.find(':');
    const std::size_t first = parse_size(option, part.substr(0, colon));
    const std::size_t last =
        colon == std::string_view::npos ? first : parse_size(option, part.substr(colon + 1));
    if (last < first) throw UsageError(fmt::format("{} '{}' runs down", option, part));
    for (std::size_t size = first; size <= last; size *= 2) sizes.push_back(size);
  }
  return sizes;
}

int parse_count(std::string_view option, std::string_view text, int least, int most) {
  std::string_view rest = text;
  int count = 0;
  if (take_number(rest, count) && rest.empty() && count >= least && count <= most) return count;
  throw UsageError(fmt::format("{} '{}' is not allowed: {} to {}", option, text, least, most));
}

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t comma = text.find(',');
    parts.push_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace mpi_bench
