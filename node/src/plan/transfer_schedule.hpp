// The schedules of a plan's transfers: which chunk goes over which leg, after which others.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "plan/plan.hpp"
#include "plan/schedule.hpp"

namespace polypath {

/// The steps of one transfer, a queue for each leg of its routes. It stands alone and holds no
/// address: equal ones are one shape, for any buffers.
///
/// A step waits for one other at most: leg 1 for its chunk's leg 0, leg 0 for the last reader of
/// what it writes.
struct TransferSchedule : Schedule {
  Request request;
  std::vector<Route> routes;
  std::uint64_t hash = 0;  ///< of all the above

  /// Whether anything is staged; otherwise it is one direct copy, that is, the native one.
  [[nodiscard]] bool split() const noexcept {
    return std::ranges::any_of(routes, [](const Route& route) { return route.staged(); });
  }

  friend bool operator==(const TransferSchedule&, const TransferSchedule&) = default;
};

/// Index into TransferSchedule::routes.
[[nodiscard]] inline std::size_t route_of(const Step& step) noexcept {
  return static_cast<std::size_t>(step.queue) / 2;
}
/// 0: it leaves the source; on a staged route 1: it reaches the destination.
[[nodiscard]] inline std::size_t leg_of(const Step& step) noexcept {
  return static_cast<std::size_t>(step.queue) % 2;
}

/// The memory that a place of one of its steps is in.
MemoryId memory_of(const TransferSchedule& transfer, const Place& place) noexcept;

/// Fills in `hash`.
void set_hash(TransferSchedule& transfer) noexcept;

/// One step among those of all transfers.
struct StepIndex {
  int transfer = 0;
  int step = 0;

  friend bool operator==(const StepIndex&, const StepIndex&) = default;
};

/// The schedules of transfers that are issued together.
struct GroupSchedule {
  /// As in the plan. Shared by all copies of the schedule.
  std::vector<std::shared_ptr<const TransferSchedule>> transfers;
  /// All steps in the order of issue, which keeps the order of each transfer's own.
  std::vector<StepIndex> order;
};

/// Direct copies first, one a transfer; then the chunks of all staged routes in turn, leg 0 of all
/// before leg 1 of any, so that no route starts late. A ring has as many slots as chunks, at most
/// what fits its memory and at most eight. Leg 0 waits once for half a ring of slots instead of
/// once for each: a wait for another GPU's event costs the CPU as much as a copy.
GroupSchedule make_schedule(const Plan& plan, const RingLimits& limits);

}  // namespace polypath
