#include "core/compare_plans.hpp"

#include <array>
#include <cstddef>

namespace polypath {

PairSamples compare_plans(Context& context, TransferSet& set, const std::vector<Request>& requests,
                          const std::shared_ptr<const PreparedPlan>& first,
                          const std::shared_ptr<const PreparedPlan>& second, PairOptions options) {
  Planner& planner = context.planner();
  const auto before = planner.plan(requests, 0);
  const std::array ways{first, second};
  const auto keep_busy = set.ahead();
  // What is to run next is set before the clock starts.
  std::size_t next = 0;
  options.ahead = [&] {
    planner.try_out(requests, ways[next]);
    next = 1 - next;
    if (keep_busy) keep_busy();
  };
  const auto issue = [&] { set.issue_polypath(); };
  const PairSamples samples = measure_pairs(context.driver(), set.streams(), issue, issue, options);
  planner.try_out(requests, before);
  return samples;
}

}  // namespace polypath
