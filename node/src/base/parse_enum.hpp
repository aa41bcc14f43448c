// Enumerators by their names.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/error.hpp"

namespace polypath {

/// The one of `values` that to_string() calls `text`. Throws InvalidArgument, which names `what`
/// was asked for and all values.
template <typename Enum>
Enum parse_enum(std::string_view text, std::string_view what,
                std::type_identity_t<std::span<const Enum>> values) {
  std::vector<std::string_view> names;
  for (const Enum value : values) {
    names.push_back(to_string(value));
    if (names.back() == text) return value;
  }
  throw InvalidArgument(fmt::format("there is no {} '{}': {}", what, text, fmt::join(names, ", ")));
}

}  // namespace polypath
