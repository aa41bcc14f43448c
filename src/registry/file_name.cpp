#include "registry/file_name.hpp"

#include <fmt/format.h>

#include <charconv>

namespace polypath {
namespace {

constexpr std::string_view kIncomplete = "new-";

template <typename Number>
bool read(std::string_view text, Number& number, int base) noexcept {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  return error == std::errc{} && end == text.data() + text.size();
}

}  // namespace

std::string to_string(const RegistryFileName& name) {
  return fmt::format("{}{}-{:016x}", name.complete ? std::string_view() : kIncomplete, name.pid,
                     name.id);
}

std::optional<RegistryFileName> parse_file_name(std::string_view text) noexcept {
  RegistryFileName name{.complete = !text.starts_with(kIncomplete)};
  if (!name.complete) text.remove_prefix(kIncomplete.size());
  const auto dash = text.find('-');
  if (dash == std::string_view::npos || text.size() - dash - 1 != 16) return std::nullopt;
  if (!read(text.substr(0, dash), name.pid, 10) || name.pid <= 0 ||
      !read(text.substr(dash + 1), name.id, 16))
    return std::nullopt;
  return name;
}

}  // namespace polypath
