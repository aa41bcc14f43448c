#include "collectives/plan/algorithm.hpp"

#include <span>

#include "base/parse_enum.hpp"

namespace polypath {

std::string_view to_string(Algorithm algorithm) noexcept {
  switch (algorithm) {
    case Algorithm::none: return "none";
    case Algorithm::cells: return "cells";
    case Algorithm::lines: return "lines";
    case Algorithm::flat: return "flat";
    case Algorithm::relayed: return "relayed";
    case Algorithm::pairwise: return "pairwise";
    case Algorithm::host_trees: return "host-trees";
    case Algorithm::mixed: return "mixed";
    case Algorithm::hierarchical: return "hierarchical";
    case Algorithm::ring: return "ring";
  }
  return "?";
}

Algorithm parse_algorithm(std::string_view text) {
  static_assert(kAlgorithms.front() == Algorithm::none);
  return parse_enum<Algorithm>(text, "algorithm", std::span(kAlgorithms).subspan(1));
}

}  // namespace polypath
