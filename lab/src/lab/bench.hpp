// One row of a benchmark: transfers together, native copies and polypath in alternating pairs,
// every byte verified.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "lab/pairs.hpp"
#include "lab/transfer_set.hpp"
#include "tune/measuring_set.hpp"

namespace polypath {

/// Runs rows on one context; keeps between them what is slow to make. Not thread-safe.
class Bench {
 public:
  explicit Bench(Context& context) : context_(context) {}

  /// The row as polypath_bench() documents it. Throws Error when bytes differ, or went another way
  /// than the plan says (in a window: were not all counted).
  nlohmann::json run(const std::vector<Request>& requests, const PairOptions& options, int window,
                     bool compare_executors);

 private:
  void verify_polypath(TransferSet& set, const PreparedPlan& plan, int window);
  nlohmann::json executors(TransferSet& set, const std::vector<Request>& requests, const Plan& plan,
                           const PairOptions& options);
  double all_gpus_at_once(bool to_host);

  Context& context_;
  std::unique_ptr<MeasurementContext> measuring_;
};

}  // namespace polypath
