// The search for the best choice: asks for the time of one choice after another. It knows nothing
// of GPUs, so it is tested on known functions.
#pragma once

#include <functional>
#include <optional>
#include <span>

#include "plan/transfer_config.hpp"

namespace polypath {

/// Microseconds of a choice; nothing when it cannot be carried out.
using MeasureFunction = std::function<std::optional<double>(const TransferConfig& choice)>;
/// True to end the search with what is best so far.
using StopFunction = std::function<bool()>;

struct SearchResult {
  std::optional<TransferConfig> best;  ///< nothing when none could be carried out
  double us = 0;                       ///< of the best
  int tried = 0;
};

struct SearchOptions {
  double min_gain = 0.005;  ///< a step must save this part of the time: less is noise
  StopFunction stop = [] { return false; };
};

/// Climbs from the best of `starts`: shares by kind of route, chunks and slots in turn, in ever
/// smaller steps. Some 10 to 60 measurements.
SearchResult local_search(std::span<const TransferConfig> starts, const MeasureFunction& measure,
                          const SearchOptions& options);

/// Every combination of route set (`starts`), share of each kind of staged route, chunk count and
/// slots on a grid around the starts.
SearchResult exhaustive_search(std::span<const TransferConfig> starts,
                               const MeasureFunction& measure, const SearchOptions& options);

/// `choice` with the share of each staged route of `kind` times `factor`, at the cost of the first
/// route; nothing when that would be left with less than 1 %, or the kind is not staged.
std::optional<TransferConfig> with_share(const TransferConfig& choice, RouteKind kind,
                                         double factor);
/// The same at the cost of all other routes, in proportion.
std::optional<TransferConfig> with_share_of_all(const TransferConfig& choice, RouteKind kind,
                                                double factor);
/// `choice` with `factor` times the chunks of each staged route, at least one.
TransferConfig with_chunks(const TransferConfig& choice, double factor);

}  // namespace polypath
