// The JSON of a tuned collective, in plans and in what was tuned; documented in polypath.h.
#pragma once

#include <nlohmann/json.hpp>

#include "collectives/plan/tuned_collective.hpp"

namespace polypath {

nlohmann::json to_json(const TunedCollective& entry);

}  // namespace polypath
