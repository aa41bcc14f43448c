// A case of a table by its name: what a test of a mutant says that it is found by.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string_view>

namespace polypath::test {

/// Throws std::invalid_argument where the table has no such case.
template <typename Case, std::size_t kCount>
const Case& case_of(const Case (&cases)[kCount], std::string_view name) {
  for (const Case& each : cases)
    if (each.name == name) return each;
  throw std::invalid_argument("no case of that name");
}

}  // namespace polypath::test
