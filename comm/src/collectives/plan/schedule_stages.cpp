#include "collectives/plan/schedule_stages.hpp"

#include <fmt/format.h>

namespace polypath {

std::vector<LinkBytes> stage_bytes(const Node& node, const CollectiveSchedule& schedule) {
  std::vector<LinkBytes> bytes(schedule.stages.size(), LinkBytes(node.links.size(), 0));
  for (const Step& step : schedule.steps)
    if (step.link >= 0)
      bytes[static_cast<std::size_t>(step.stage)][static_cast<std::size_t>(step.link)] +=
          static_cast<double>(step.bytes);
  return bytes;
}

std::vector<CollectiveStage> stages_of(const Node& node, const CollectiveSchedule& schedule,
                                       const ScheduleTime& time) {
  std::vector<CollectiveStage> stages;
  const std::vector<LinkBytes> bytes = stage_bytes(node, schedule);
  for (std::size_t i = 0; i < schedule.stages.size(); ++i) {
    const Drain busy = drain(node, bytes[i], 1);
    if (busy.us == 0) continue;
    CollectiveStage stage{schedule.stages[i], "", {}, busy.gbps, time.stage_us[i]};
    for (std::size_t link = 0; link < node.links.size(); ++link)
      if (bytes[i][link] > 0)
        stage.links.push_back(
            fmt::format("{}>{}", to_string(node.links[link].from), to_string(node.links[link].to)));
    stages.push_back(std::move(stage));
  }
  return stages;
}

}  // namespace polypath
