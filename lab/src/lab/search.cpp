#include "lab/search.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace polypath {
namespace {

constexpr double kMinFirstShare = 0.01;
constexpr std::array kKinds{RouteKind::via_gpu, RouteKind::via_host};

/// Share steps of each round of the climb.
constexpr std::array kShareSteps{1.25, 1.12, 1.05, 1.02};
constexpr std::array kSlotSteps{3, 4, 6, 16};

constexpr std::array kGridShares{0.6, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4};
constexpr std::array kGridChunks{0.25, 0.5, 1.0, 2.0, 4.0};
constexpr std::array kGridSlots{3, 5, 8};

bool has(const TransferConfig& choice, RouteKind kind) {
  return std::ranges::find(choice.routes, kind, &RouteConfig::kind) != choice.routes.end();
}

class Search {
 public:
  Search(const MeasureFunction& measure, const SearchOptions& options)
      : measure_(measure), options_(options) {}

  [[nodiscard]] const SearchResult& result() const noexcept { return result_; }
  [[nodiscard]] bool ended() const { return options_.stop(); }

  /// Measures, and keeps it when it is better. True when it was kept.
  bool attempt(const TransferConfig& choice) {
    if (ended() || std::ranges::find(seen_, choice) != seen_.end()) return false;
    seen_.push_back(choice);
    const auto us = measure_(choice);
    if (!us) return false;
    ++result_.tried;
    if (result_.best && *us >= result_.us * (1 - options_.min_gain)) return false;
    result_.best = choice;
    result_.us = *us;
    return true;
  }

  /// One share up or down, as long as that helps.
  bool climb_shares(double step) {
    bool better = false;
    for (const RouteKind kind : kKinds)
      for (const double factor : {step, 1 / step})
        while (attempt_share(kind, factor)) better = true;
    return better;
  }

  /// First at the cost of the first route. Where that one and those of another kind end together,
  /// only a step that takes from both can help.
  bool attempt_share(RouteKind kind, double factor) {
    const TransferConfig from = *result_.best;
    const auto next = with_share(from, kind, factor);
    if (next && attempt(*next)) return true;
    if (!has(from, RouteKind::via_gpu) || !has(from, RouteKind::via_host)) return false;
    const auto other = with_share_of_all(from, kind, factor);
    return other && attempt(*other);
  }

  /// Where all routes end together, other chunks gain nothing until the staged routes carry more as
  /// well.
  bool climb_chunks(double step) {
    bool better = false;
    for (const double factor : {2.0, 0.5})
      while (attempt(with_chunks(*result_.best, factor)) || attempt_chunks(factor, step))
        better = true;
    return better;
  }

  bool attempt_chunks(double factor, double step) {
    std::optional<TransferConfig> next = with_chunks(*result_.best, factor);
    for (const RouteKind kind : kKinds)
      if (next && has(*next, kind)) next = with_share(*next, kind, step);
    return next && attempt(*next);
  }

  bool climb_slots() {
    bool better = false;
    for (const int slots : kSlotSteps) {
      TransferConfig choice = *result_.best;
      choice.slots = slots;
      better = attempt(choice) || better;
    }
    return better;
  }

 private:
  const MeasureFunction& measure_;
  const SearchOptions& options_;
  std::vector<TransferConfig> seen_;
  SearchResult result_;
};

}  // namespace

std::optional<TransferConfig> with_share(const TransferConfig& choice, RouteKind kind,
                                         double factor) {
  if (!has(choice, kind) || kind == RouteKind::direct) return std::nullopt;
  TransferConfig changed = choice;
  double others = 0;
  for (std::size_t r = 1; r < changed.routes.size(); ++r) {
    RouteConfig& route = changed.routes[r];
    if (route.kind == kind) route.share *= factor;
    others += route.share;
  }
  changed.routes.front().share = 1 - others;
  if (changed.routes.front().share < kMinFirstShare) return std::nullopt;
  return changed;
}

std::optional<TransferConfig> with_share_of_all(const TransferConfig& choice, RouteKind kind,
                                                double factor) {
  if (!has(choice, kind) || kind == RouteKind::direct) return std::nullopt;
  double old_share = 0;
  for (const RouteConfig& route : choice.routes)
    if (route.kind == kind) old_share += route.share;
  const double rest = (1 - old_share * factor) / (1 - old_share);
  TransferConfig changed = choice;
  for (RouteConfig& route : changed.routes) route.share *= route.kind == kind ? factor : rest;
  if (changed.routes.front().share < kMinFirstShare) return std::nullopt;
  return changed;
}

TransferConfig with_chunks(const TransferConfig& choice, double factor) {
  TransferConfig changed = choice;
  for (RouteConfig& route : changed.routes)
    if (route.kind != RouteKind::direct)
      route.chunks = std::max(1, static_cast<int>(std::lround(route.chunks * factor)));
  return changed;
}

SearchResult local_search(std::span<const TransferConfig> starts, const MeasureFunction& measure,
                          const SearchOptions& options) {
  Search search(measure, options);
  for (const TransferConfig& start : starts) search.attempt(start);
  if (!search.result().best || search.result().best->native()) return search.result();
  for (const double step : kShareSteps) {
    search.climb_shares(step);
    search.climb_chunks(step);
  }
  search.climb_slots();
  return search.result();
}

SearchResult exhaustive_search(std::span<const TransferConfig> starts,
                               const MeasureFunction& measure, const SearchOptions& options) {
  Search search(measure, options);
  for (const TransferConfig& start : starts) {
    search.attempt(start);
    if (start.native()) continue;
    for (const double gpu : kGridShares) {
      if (gpu != 1.0 && !has(start, RouteKind::via_gpu)) continue;
      const std::optional<TransferConfig> with_gpu =
          gpu == 1.0 ? start : with_share(start, RouteKind::via_gpu, gpu);
      if (!with_gpu) continue;
      for (const double host : kGridShares) {
        if (host != 1.0 && !has(start, RouteKind::via_host)) continue;
        const std::optional<TransferConfig> with_both =
            host == 1.0 ? with_gpu : with_share(*with_gpu, RouteKind::via_host, host);
        if (!with_both) continue;
        for (const double chunks : kGridChunks)
          for (const int slots : kGridSlots) {
            if (search.ended()) return search.result();
            TransferConfig choice = with_chunks(*with_both, chunks);
            choice.slots = slots;
            search.attempt(choice);
          }
      }
    }
  }
  return search.result();
}

}  // namespace polypath
