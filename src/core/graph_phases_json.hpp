// polypath_graph_phases: the measurement of tune on the node of a context, as JSON.
#pragma once

#include <nlohmann/json.hpp>

#include "core/context.hpp"
#include "tune/graph_phases.hpp"

namespace polypath {

/// What polypath_graph_phases() documents. Throws as measure_graph_phases.
nlohmann::json graph_phases_json(Context& context, const GraphPhasesRequest& request);

}  // namespace polypath
