#include "plan/tuned_transfer.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "plan/profile_entries.hpp"

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
  for (const TunedTransfer& one : choices) {
    if (one.pattern != pattern || one.pair != pair) continue;
    if (executor && one.executor != *executor) continue;
    const double ratio = static_cast<double>(bytes) / static_cast<double>(one.choice.bytes);
    if (ratio < kNearestBelow) continue;
    const double distance = std::abs(std::log(ratio));
    const bool nearer = best == nullptr || distance < least;
    const bool faster = !nearer && distance == least && merit(one) > merit(*best);
    if (!nearer && !faster) continue;
    best = &one;
    least = distance;
  }
  return best;
}

const TunedTransfer* known_choice(std::span<const TunedTransfer> choices, Pattern pattern,
                                  std::string_view pair, std::uint64_t bytes,
                                  ExecutorKind executor) {
  const auto same = std::ranges::find_if(choices, [&](const TunedTransfer& one) {
    return one.pattern == pattern && one.pair == pair && one.choice.bytes == bytes &&
           one.executor == executor;
  });
  return same == choices.end() ? nullptr : &*same;
}

void put_choice(std::vector<TunedTransfer>& choices, TunedTransfer found) {
  const TunedTransfer* const same =
      known_choice(choices, found.pattern, found.pair, found.choice.bytes, found.executor);
  if (same == nullptr)
    choices.push_back(std::move(found));
  else
    choices[static_cast<std::size_t>(same - choices.data())] = std::move(found);
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
