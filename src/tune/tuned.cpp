#include "tune/tuned.hpp"

#include <algorithm>
#include <cmath>

namespace polypath {
namespace {

constexpr double kNearestBelow = 0.7;  // about 1 / sqrt(2): the sizes are powers of two

}  // namespace

std::string_view to_string(Pattern pattern) noexcept {
  switch (pattern) {
    case Pattern::one_way: return "one way";
    case Pattern::both_ways: return "both ways";
    case Pattern::window: return "window";
  }
  return "?";
}

const TunedChoice* find_choice(std::span<const TunedChoice> choices, Pattern pattern,
                               std::string_view pair, std::uint64_t bytes) {
  const TunedChoice* nearest = nullptr;
  double least = 0;
  for (const TunedChoice& one : choices) {
    if (one.pattern != pattern || one.pair != pair) continue;
    const double ratio = static_cast<double>(bytes) / static_cast<double>(one.choice.bytes);
    if (ratio < kNearestBelow) continue;
    const double distance = std::abs(std::log(ratio));
    if (nearest != nullptr && distance >= least) continue;
    nearest = &one;
    least = distance;
  }
  return nearest;
}

void put_choice(std::vector<TunedChoice>& choices, TunedChoice found) {
  const auto same = std::ranges::find_if(choices, [&](const TunedChoice& one) {
    return one.pattern == found.pattern && one.pair == found.pair &&
           one.choice.bytes == found.choice.bytes;
  });
  if (same == choices.end())
    choices.push_back(std::move(found));
  else
    *same = std::move(found);
}

std::uint32_t digest(const TunedChoice& choice) noexcept {
  std::uint32_t hash = 2166136261u;  // FNV-1a
  const auto mix = [&](std::uint64_t word) {
    for (int i = 0; i < 8; ++i) hash = (hash ^ (word >> 8 * i & 0xff)) * 16777619u;
  };
  mix(static_cast<std::uint64_t>(choice.executor));
  mix(static_cast<std::uint64_t>(choice.choice.slots));
  for (const RouteChoice& route : choice.choice.routes) {
    mix(static_cast<std::uint64_t>(route.kind));
    mix(static_cast<std::uint64_t>(std::llround(route.share * 1e4)));
    mix(static_cast<std::uint64_t>(route.chunks));
  }
  return hash;
}

}  // namespace polypath
