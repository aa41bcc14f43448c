// Two plans for the same transfers, run in alternating pairs.
#pragma once

#include <memory>
#include <vector>

#include "core/transfer_set.hpp"
#include "tune/pairs.hpp"

namespace polypath {

/// Runs `set`, whose transfers are `requests` (once or as a window), by `first` and by `second` in turn; the
/// samples of `first` are in PairSamples::native. options.ahead is set here. Afterwards plans are those of
/// before. Throws what transfers throw.
PairSamples compare_plans(Context& context, TransferSet& set, const std::vector<Request>& requests,
                          const std::shared_ptr<const PreparedPlan>& first,
                          const std::shared_ptr<const PreparedPlan>& second, PairOptions options);

}  // namespace polypath
