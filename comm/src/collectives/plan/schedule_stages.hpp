// The stages of a schedule, for people: over which links, how busy.
#pragma once

#include <vector>

#include "collectives/plan/collective_plan.hpp"
#include "collectives/plan/kernel_cost.hpp"
#include "collectives/plan/schedule_time.hpp"

namespace polypath {

/// What each link carries in each stage.
std::vector<LinkBytes> stage_bytes(const Node& node, const CollectiveSchedule& schedule);

/// The stages that use a link.
std::vector<CollectiveStage> stages_of(const Node& node, const CollectiveSchedule& schedule,
                                       const ScheduleTime& time);

}  // namespace polypath
