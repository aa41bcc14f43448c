// A schedule: the copies of a plan in the order of issue, with what each must wait for. A plain value
// that any executor can run; addresses, streams and events are the executor's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plan/copy_dag.hpp"

namespace polypath {

/// One copy over one link.
struct Copy {
  int transfer = 0;
  int route = 0;             ///< index into TransferPlan::routes
  int leg = 0;               ///< 0: leaves the source; on a staged route 1: reaches the destination
  std::uint64_t offset = 0;  ///< in the message
  std::uint64_t bytes = 0;
  int slot = 0;  ///< of the route's ring: written by leg 0, read by leg 1
  /// The copy of the other leg, listed before, that must have completed: leg 1 waits for its chunk's
  /// leg 0; leg 0 waits for the slot's last reader. kNoCopy: none but its own leg's order.
  int after = kNoCopy;
  bool awaited = false;  ///< some later copy names this one in `after`
};

struct Schedule {
  std::vector<Copy> copies;
  std::vector<std::vector<RingShape>> rings;  ///< [transfer][route]
  /// By transfer: its copies alone; null for the native ones. Shared by all copies of the schedule.
  std::vector<std::shared_ptr<const CopyDag>> dags;
};

/// Direct copies first, one a transfer; then the chunks of all staged routes in turn, leg 0 of all before
/// leg 1 of any, so that no route starts late. A ring has as many
/// slots as chunks, at most what fits its ring and at most eight. Leg 0 waits once for half a ring
/// of slots instead of once for each: a wait for another GPU's event costs the CPU as much as a copy.
Schedule make_schedule(const Plan& plan, const RingLimits& limits);

/// A line a copy, for people and tests.
std::string to_string(const Schedule& schedule);

}  // namespace polypath
