// The tuner of collectives: measures the ways that the plan knows for an operation and a size
// against the plan's own, in alternating pairs, and keeps the best in the node's profile.
#pragma once

#include <chrono>
#include <vector>

#include "collectives/collective_profile.hpp"
#include "core/context.hpp"
#include "lab/collective_bench.hpp"
#include "lab/tuning.hpp"

namespace polypath {

struct CollectiveTuningRequest {
  std::vector<CollectiveOp> ops;     ///< empty: all
  std::vector<std::uint64_t> sizes;  ///< bytes of a rank's larger buffer; empty: 16 KiB to 64 MiB
  double budget_s = 60;
  bool again = false;  ///< also what is tuned already, but for edited entries
};

/// One a rank; all ranks run the same request.
class CollectiveTuning {
 public:
  /// `context` keeps what is found, on rank 0. `progress` is asked there.
  CollectiveTuning(CollectiveBench& bench, Context& context, CollectiveTuningRequest request,
                   TuningProgress progress);

  /// Collective. Throws Error, on all ranks, when an element is wrong; what was found before is
  /// kept.
  TuningResult run();

 private:
  struct Task {
    CollectiveOp op = CollectiveOp::allreduce;
    std::uint64_t bytes = 0;
  };

  void tune(const Task& task);
  /// Times of a call by `way` and by the plan's own, by pairs.
  CollectiveBench::PairedUs compare(const Task& task, const TunedCollective& entry, int pairs);
  void keep(TunedCollective entry);
  /// Rank 0's word.
  bool go_on();
  [[nodiscard]] double seconds() const;

  CollectiveBench& bench_;
  Context& context_;
  CollectiveTuningRequest request_;
  TuningProgress progress_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  ProfileTable<TunedCollective> found_;  ///< all that is known, the same on all ranks
  std::size_t done_ = 0;
  std::size_t total_ = 0;
  std::string what_;
  bool stopped_ = false;
};

}  // namespace polypath
