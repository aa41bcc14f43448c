// One row of `polypath bench pages`: a batch of equal blocks at random places, by the driver and by
// polypath in alternating pairs, every byte verified.
#pragma once

#include <nlohmann/json.hpp>

#include "lab/block_set.hpp"
#include "lab/pairs.hpp"

namespace polypath {

/// The row as polypath_bench_blocks() documents it. Throws Error when bytes differ.
nlohmann::json bench_blocks(Context& context, const BlocksRequest& request,
                            const PairOptions& options);

}  // namespace polypath
