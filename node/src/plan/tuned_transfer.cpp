#include "plan/tuned_transfer.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "plan/entry_digest.hpp"

namespace polypath {
namespace {

constexpr double kNearestBelow = 0.7;  // about 1 / sqrt(2): the sizes are powers of two

/// A graph is preferred when it is as fast within this.
constexpr double kGraphBonus = 1.003;

/// Times native; 0 where nothing was measured.
double merit(const TunedTransfer& choice) {
  if (choice.native_gbps <= 0) return 0;
  return choice.measured_gbps / choice.native_gbps *
         (choice.executor == ExecutorKind::graph && !choice.choice.native() ? kGraphBonus : 1);
}

}  // namespace

std::string_view to_string(Pattern pattern) noexcept {
  switch (pattern) {
    case Pattern::one_way: return "one way";
    case Pattern::both_ways: return "both ways";
    case Pattern::window: return "window";
  }
  return "?";
}

const TunedTransfer* find_choice(std::span<const TunedTransfer> choices, Pattern pattern,
                                 std::string_view pair, std::uint64_t bytes,
                                 std::optional<ExecutorKind> executor) {
  const TunedTransfer* best = nullptr;
  double least = 0;
  for (const TunedTransfer& entry : choices) {
    if (entry.pattern != pattern || entry.pair != pair) continue;
    if (executor && entry.executor != *executor) continue;
    const double ratio = static_cast<double>(bytes) / static_cast<double>(entry.choice.bytes);
    if (ratio < kNearestBelow) continue;
    const double distance = std::abs(std::log(ratio));
    const bool nearer = best == nullptr || distance < least;
    const bool faster = !nearer && distance == least && merit(entry) > merit(*best);
    if (!nearer && !faster) continue;
    best = &entry;
    least = distance;
  }
  return best;
}

std::uint32_t digest(const TunedTransfer& choice) noexcept {
  EntryDigest all;
  all.mix(static_cast<std::uint64_t>(choice.pattern));
  all.mix_letters(choice.pair);
  all.mix(choice.choice.bytes);
  all.mix(static_cast<std::uint64_t>(choice.executor));
  all.mix(static_cast<std::uint64_t>(choice.choice.slots));
  for (const RouteConfig& route : choice.choice.routes) {
    all.mix(static_cast<std::uint64_t>(route.kind));
    all.mix(static_cast<std::uint64_t>(std::llround(route.share * 1e4)));
    all.mix(static_cast<std::uint64_t>(route.chunks));
  }
  return all.value();
}

}  // namespace polypath
