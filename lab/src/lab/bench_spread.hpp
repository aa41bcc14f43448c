// One row of `polypath bench spread`: the same bytes to several GPUs, as a native copy for each and
// by polypath in alternating pairs, every byte verified.
#pragma once

#include <nlohmann/json.hpp>

#include "lab/pairs.hpp"
#include "lab/spread_set.hpp"

namespace polypath {

/// The row as polypath_bench_spread() documents it. Throws Error when bytes differ.
nlohmann::json bench_spread(Context& context, const SpreadRequest& request,
                            const PairOptions& options);

}  // namespace polypath
