// The JSON that the C API returns; the shapes are documented in polypath.h.
#pragma once

#include <nlohmann/json.hpp>

#include "core/context.hpp"

namespace polypath {

nlohmann::json to_json(const Plan& plan);
nlohmann::json to_json(const std::vector<OptionInfo>& options);
nlohmann::json topology_json(const Context& context);
nlohmann::json devices_json(Context& context);
/// polypath_load().
nlohmann::json load_json(Context& context);
/// Links of the node's staged routes between the plan's memories that count as loaded now.
nlohmann::json loaded_json(Context& context, const Plan& plan);
nlohmann::json spread_json(const Node& node, const SpreadTrees& trees, const SpreadPlan& plan);
nlohmann::json counters_json(Context& context);
nlohmann::json tuned_json(const Context& context);

}  // namespace polypath
