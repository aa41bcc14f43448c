#include "plan/tuned_collective.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace polypath {
namespace {

constexpr double kFarthest = 1.42;  // about sqrt(2): the sizes are powers of two

}  // namespace

std::string to_string(const CollectiveWay& way) {
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

const TunedCollective* known_collective(std::span<const TunedCollective> all, std::string_view op,
                                        std::string_view ranks, std::uint64_t bytes) {
  const auto same = std::ranges::find_if(all, [&](const TunedCollective& one) {
    return one.op == op && one.ranks == ranks && one.bytes == bytes;
  });
  return same == all.end() ? nullptr : &*same;
}

void put_collective(std::vector<TunedCollective>& all, TunedCollective found) {
  const TunedCollective* const same = known_collective(all, found.op, found.ranks, found.bytes);
  if (same == nullptr)
    all.push_back(std::move(found));
  else
    all[static_cast<std::size_t>(same - all.data())] = std::move(found);
}

std::uint32_t digest(const TunedCollective& one) noexcept {
  std::uint32_t hash = 2166136261u;  // FNV-1a
  const auto mix = [&](std::uint64_t word) {
    for (int i = 0; i < 8; ++i) hash = (hash ^ (word >> 8 * i & 0xff)) * 16777619u;
  };
  for (const std::string* text : {&one.op, &one.ranks, &one.way.algorithm}) {
    for (const char c : *text) mix(static_cast<unsigned char>(c));
    mix(text->size());
  }
  mix(one.bytes);
  mix(static_cast<std::uint64_t>(one.way.stages));
  mix(static_cast<std::uint64_t>(one.way.blocks));
  mix(static_cast<std::uint64_t>(one.way.lanes));
  mix(one.way.chunk_bytes);
  return hash;
}

}  // namespace polypath
