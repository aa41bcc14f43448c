#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <vector>

#include "base/error.hpp"
#include "collectives/collectives.hpp"

namespace polypath {
namespace {

constexpr std::array kChoices{AlgorithmOverride::planned,   AlgorithmOverride::kernels,
                              AlgorithmOverride::pairwise,  AlgorithmOverride::hierarchical,
                              AlgorithmOverride::published, AlgorithmOverride::ring,
                              AlgorithmOverride::host,      AlgorithmOverride::host_trees};

}  // namespace

std::string_view to_string(AlgorithmOverride choice) noexcept {
  switch (choice) {
    case AlgorithmOverride::planned: return "planned";
    case AlgorithmOverride::kernels: return "kernels";
    case AlgorithmOverride::pairwise: return "pairwise";
    case AlgorithmOverride::hierarchical: return "hierarchical";
    case AlgorithmOverride::published: return "published";
    case AlgorithmOverride::ring: return "ring";
    case AlgorithmOverride::host: return "host";
    case AlgorithmOverride::host_trees: return "host-trees";
    case AlgorithmOverride::tried: return "tried";
  }
  return "?";
}

AlgorithmOverride parse_collective_choice(std::string_view text) {
  std::vector<std::string_view> names;
  for (const AlgorithmOverride choice : kChoices) {
    names.push_back(to_string(choice));
    if (names.back() == text) return choice;
  }
  throw InvalidArgument(fmt::format("there is no choice '{}': {}", text, fmt::join(names, ", ")));
}

}  // namespace polypath
