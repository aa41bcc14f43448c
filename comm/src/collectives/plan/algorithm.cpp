#include "collectives/plan/algorithm.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "base/error.hpp"

namespace polypath {

std::string_view to_string(Algorithm algorithm) noexcept {
  switch (algorithm) {
    case Algorithm::none: return "none";
    case Algorithm::cells: return "cells";
    case Algorithm::flat: return "flat";
    case Algorithm::pairwise: return "pairwise";
    case Algorithm::host_trees: return "host-trees";
    case Algorithm::mixed: return "mixed";
    case Algorithm::hierarchical: return "hierarchical";
    case Algorithm::ring: return "ring";
  }
  return "?";
}

Algorithm parse_algorithm(std::string_view text) {
  std::vector<std::string_view> names;
  for (const Algorithm algorithm : kAlgorithms) {
    if (algorithm == Algorithm::none) continue;
    names.push_back(to_string(algorithm));
    if (names.back() == text) return algorithm;
  }
  throw InvalidArgument(
      fmt::format("there is no algorithm '{}': {}", text, fmt::join(names, ", ")));
}

}  // namespace polypath
