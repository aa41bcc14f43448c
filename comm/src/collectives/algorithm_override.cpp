#include <array>

#include "base/parse_enum.hpp"
#include "collectives/collectives.hpp"

namespace polypath {
namespace {

constexpr std::array kChoices{
    AlgorithmOverride::planned,    AlgorithmOverride::kernels, AlgorithmOverride::lines,
    AlgorithmOverride::pairwise,   AlgorithmOverride::alone,   AlgorithmOverride::hierarchical,
    AlgorithmOverride::published,  AlgorithmOverride::ring,    AlgorithmOverride::host,
    AlgorithmOverride::host_trees, AlgorithmOverride::relayed};

}  // namespace

std::string_view to_string(AlgorithmOverride choice) noexcept {
  switch (choice) {
    case AlgorithmOverride::planned: return "planned";
    case AlgorithmOverride::kernels: return "kernels";
    case AlgorithmOverride::lines: return "lines";
    case AlgorithmOverride::relayed: return "relayed";
    case AlgorithmOverride::pairwise: return "pairwise";
    case AlgorithmOverride::alone: return "alone";
    case AlgorithmOverride::hierarchical: return "hierarchical";
    case AlgorithmOverride::published: return "published";
    case AlgorithmOverride::ring: return "ring";
    case AlgorithmOverride::host: return "host";
    case AlgorithmOverride::host_trees: return "host-trees";
    case AlgorithmOverride::tried: return "tried";
    case AlgorithmOverride::uneven: return "uneven";
  }
  return "?";
}

AlgorithmOverride parse_collective_choice(std::string_view text) {
  return parse_enum<AlgorithmOverride>(text, "choice", kChoices);
}

}  // namespace polypath
