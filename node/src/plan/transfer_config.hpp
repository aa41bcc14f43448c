// A choice: which kinds of routes carry which part of a message, in how many chunks and slots,
// without naming a memory, so that what was found best for one pair serves all pairs like it. A
// tuner finds choices by measurement; a plan can be made from one instead of from the cost model.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "plan/plan.hpp"

namespace polypath {

/// What runs a schedule: streams and events, or a CUDA graph.
enum class ExecutorKind : std::uint8_t { stream, graph };
std::string_view to_string(ExecutorKind kind) noexcept;

/// One route of a choice.
struct RouteConfig {
  RouteKind kind = RouteKind::direct;
  double share = 1;  ///< of the message; those of a choice add up to 1
  int chunks = 1;    ///< at the choice's size

  friend bool operator==(const RouteConfig&, const RouteConfig&) = default;
};

/// What every transfer of a group does.
struct TransferConfig {
  std::uint64_t bytes = 0;  ///< of a transfer, at which the chunks count
  std::vector<RouteConfig> routes = {};
  int slots = 0;  ///< of a ring, at most; 0: as many as the schedule takes by itself

  [[nodiscard]] bool native() const noexcept {
    return routes.size() == 1 && routes.front().kind == RouteKind::direct;
  }
  friend bool operator==(const TransferConfig&, const TransferConfig&) = default;
};

/// "direct", "gpu", "host": a kind as settings and profiles name it.
std::string_view choice_name(RouteKind kind) noexcept;

/// The native copy.
TransferConfig native_choice(std::uint64_t bytes);

/// What the plan does with its first transfer.
TransferConfig choice_of(const Plan& plan);

/// The plan that follows `choice`: routes of each kind in the order of the route sets, the same
/// shares for any size, chunks as large as at the choice's size. Its prediction is the cost
/// model's. Nothing when the pair has fewer routes of a kind, the settings do not allow them, or a
/// share or a ring is too small.
std::optional<Plan> make_plan(const Node& node, const RouteSets& route_sets,
                              const std::vector<Request>& requests, const PlanOptions& options,
                              const TransferConfig& choice);

}  // namespace polypath
