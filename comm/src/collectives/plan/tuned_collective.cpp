#include "collectives/plan/tuned_collective.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "plan/entry_digest.hpp"

namespace polypath {
namespace {

constexpr double kFarthest = 1.42;  // about sqrt(2): the sizes are powers of two

}  // namespace

std::string to_string(const CollectiveVariant& way) {
  std::string text = way.algorithm;
  if (way.stages > 0) text += fmt::format(", {} stage{}", way.stages, way.stages > 1 ? "s" : "");
  if (way.blocks > 0) text += fmt::format(", {} block{}", way.blocks, way.blocks > 1 ? "s" : "");
  if (way.tile_bytes > 0) text += fmt::format(", tiles of {} bytes", way.tile_bytes);
  if (way.lag > 0) text += fmt::format(", lag {}", way.lag);
  if (way.lanes > 0) text += fmt::format(", {} lane{}", way.lanes, way.lanes > 1 ? "s" : "");
  if (way.chunk_bytes > 0) text += fmt::format(", chunks of {} bytes", way.chunk_bytes);
  return text;
}

const TunedCollective* find_collective(std::span<const TunedCollective> all, std::string_view op,
                                       std::string_view ranks, std::uint64_t bytes) {
  const TunedCollective* best = nullptr;
  double least = std::log(kFarthest);
  for (const TunedCollective& entry : all) {
    if (entry.op != op || entry.ranks != ranks || bytes == 0) continue;
    const double distance =
        std::abs(std::log(static_cast<double>(bytes) / static_cast<double>(entry.bytes)));
    if (distance > least || (best != nullptr && distance == least)) continue;
    best = &entry;
    least = distance;
  }
  return best;
}

std::uint32_t digest(const TunedCollective& entry) noexcept {
  EntryDigest all;
  for (const std::string* text : {&entry.op, &entry.ranks, &entry.way.algorithm})
    all.mix_text(*text);
  all.mix(entry.bytes);
  all.mix(static_cast<std::uint64_t>(entry.way.stages));
  all.mix(static_cast<std::uint64_t>(entry.way.blocks));
  all.mix(static_cast<std::uint64_t>(entry.way.lanes));
  all.mix(entry.way.chunk_bytes);
  // Entries of earlier versions have neither.
  if (entry.way.tile_bytes > 0 || entry.way.lag > 0) {
    all.mix(entry.way.tile_bytes);
    all.mix(static_cast<std::uint64_t>(entry.way.lag));
  }
  return all.value();
}

}  // namespace polypath
