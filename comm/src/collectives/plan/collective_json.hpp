// The JSON of a plan that the C API returns; its shape is documented in polypath.h.
#pragma once

#include <nlohmann/json.hpp>

#include "collectives/plan/collective_plan.hpp"

namespace polypath {

nlohmann::json to_json(const CollectivePlan& plan);

}  // namespace polypath
