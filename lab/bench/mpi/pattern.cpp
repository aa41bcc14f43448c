#include "pattern.hpp"

#include <fmt/format.h>

#include "support/usage_error.hpp"

namespace mpi_bench {
namespace {

constexpr int kForward = 1;
constexpr int kBackward = 2;

}  // namespace

Flows one_way(Pattern pattern, int rank, int size) {
  if (pattern == Pattern::ring)
    return {{{(rank + 1) % size, kForward}}, {{(rank + size - 1) % size, kForward}}};
  if (rank % 2 == 0) return {{{rank + 1, kForward}}, {}};
  return {{}, {{rank - 1, kForward}}};
}

Flows both_ways(Pattern pattern, int rank, int size) {
  Flows flows = one_way(pattern, rank, size);
  const Flows forward = flows;
  for (const Flow& flow : forward.to) flows.from.push_back({flow.peer, kBackward});
  for (const Flow& flow : forward.from) flows.to.push_back({flow.peer, kBackward});
  return flows;
}

Pattern parse_pattern(std::string_view option, std::string_view value) {
  for (const Pattern pattern : {Pattern::pair, Pattern::ring})
    if (value == to_string(pattern)) return pattern;
  throw UsageError(fmt::format("{} '{}' is not one of pair, ring", option, value));
}

void require_ranks(Pattern pattern, int size) {
  if (pattern == Pattern::pair && size % 2 != 0)
    throw UsageError(fmt::format("pairs need an even number of ranks, not {}", size));
  if (size < 2) throw UsageError("a ring needs at least 2 ranks");
}

std::string_view to_string(Pattern pattern) noexcept {
  switch (pattern) {
    case Pattern::pair: return "pair";
    case Pattern::ring: return "ring";
  }
  return "?";
}

}  // namespace mpi_bench
