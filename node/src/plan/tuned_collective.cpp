#include "plan/tuned_collective.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "plan/profile_entries.hpp"

namespace polypath {
namespace {

constexpr double kFarthest = 1.42;  // about sqrt(2): the sizes are powers of two

}  // namespace

std::string to_string(const CollectiveVariant& way) {
  std::string text = way.algorithm;
  if (way.stages > 0) text += fmt::format(", {} stage{}", way.stages, way.stages > 1 ? "s" : "");
  if (way.blocks > 0) text += fmt::format(", {} block{}", way.blocks, way.blocks > 1 ? "s" : "");
  if (way.lanes > 0) text += fmt::format(", {} lane{}", way.lanes, way.lanes > 1 ? "s" : "");
  if (way.chunk_bytes > 0) text += fmt::format(", chunks of {} bytes", way.chunk_bytes);
  return text;
}

const TunedCollective* find_collective(std::span<const TunedCollective> all, std::string_view op,
                                       std::string_view ranks, std::uint64_t bytes) {
  const TunedCollective* best = nullptr;
  double least = std::log(kFarthest);
  for (const TunedCollective& one : all) {
    if (one.op != op || one.ranks != ranks || bytes == 0) continue;
    const double distance =
        std::abs(std::log(static_cast<double>(bytes) / static_cast<double>(one.bytes)));
    if (distance > least || (best != nullptr && distance == least)) continue;
    best = &one;
    least = distance;
  }
  return best;
}

std::uint32_t digest(const TunedCollective& one) noexcept {
  EntryDigest all;
  for (const std::string* text : {&one.op, &one.ranks, &one.way.algorithm}) all.mix_text(*text);
  all.mix(one.bytes);
  all.mix(static_cast<std::uint64_t>(one.way.stages));
  all.mix(static_cast<std::uint64_t>(one.way.blocks));
  all.mix(static_cast<std::uint64_t>(one.way.lanes));
  all.mix(one.way.chunk_bytes);
  return all.value();
}

}  // namespace polypath
