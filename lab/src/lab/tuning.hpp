// The tuner: searches the best choice for each pattern, pair class and size by running transfers,
// and keeps each in the node's profile as soon as it is found.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "lab/search.hpp"
#include "lab/transfer_set.hpp"

namespace polypath {

struct TuningRequest {
  std::vector<Request> pairs;  ///< one of each class; empty: all classes. Their bytes are ignored
  std::vector<std::uint64_t> sizes;  ///< empty: 4 MiB to 512 MiB in steps of 2
  double budget_s = 60;
  bool exhaustive = false;
  bool again = false;  ///< also what is tuned already, but for edited entries
};

/// Called between measurements; false ends the search.
using TuningProgress = std::function<bool(std::size_t done, std::size_t total, double seconds_left,
                                          const std::string& what)>;

struct TuningResult {
  bool stopped = false;  ///< by the progress function or the budget
  double seconds = 0;
};

class Tuning {
 public:
  Tuning(Context& context, TuningRequest request, TuningProgress progress);

  /// Throws InvalidArgument for a pair or size that is not allowed, and what transfers throw. What
  /// was found before is kept.
  TuningResult run();

 private:
  struct Task {
    Pattern pattern = Pattern::one_way;
    Request request;
    std::string pair;
  };

  [[nodiscard]] std::vector<Task> tasks() const;
  [[nodiscard]] bool is_known(const Task& task) const;
  [[nodiscard]] bool is_known(const Task& task, ExecutorKind executor) const;
  void tune(const Task& task);
  /// The best choice with this executor, kept; nothing when the search was stopped.
  std::optional<TransferConfig> tune(const Task& task, ExecutorKind executor,
                                     const std::vector<Request>& group,
                                     const std::vector<TransferConfig>& starts, TransferSet& set);
  std::optional<double> time_us(const TransferConfig& choice, ExecutorKind executor,
                                const std::vector<Request>& group, TransferSet& set);
  /// `candidate`, or the cost model's own choice if that is as fast when both run in turn. The best
  /// of many measurements is in part luck.
  TransferConfig confirmed(const TransferConfig& candidate, ExecutorKind executor,
                           const std::vector<Request>& group, TransferSet& set);
  [[nodiscard]] std::vector<TransferConfig> starts(const std::vector<Request>& group);
  bool report();
  [[nodiscard]] double seconds() const;

  Context& context_;
  TuningRequest request_;
  TuningProgress progress_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::size_t done_ = 0;
  std::size_t total_ = 0;
  std::string what_;
  double task_ends_s_ = 0;  ///< when the task at hand has had its part of the budget
  bool stopped_ = false;
};

}  // namespace polypath
