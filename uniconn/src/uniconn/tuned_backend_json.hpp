// Backends that were measured, as JSON (polypath.h).
#pragma once

#include <nlohmann/json.hpp>

#include "uniconn/tuned_backend.hpp"

namespace polypath {

/// An entry of "comm" of polypath_tuning_results().
nlohmann::json to_json(const TunedBackend& entry);

}  // namespace polypath
