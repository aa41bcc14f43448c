// One row of a benchmark of collectives: polypath against NCCL, or one of its algorithms against
// another, in alternating pairs, rows of calls, every element compared.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "collectives/collectives.hpp"
#include "lab/nccl.hpp"
#include "lab/pairs.hpp"
#include "lab/rank_order.hpp"

namespace polypath {

struct CollectiveBenchRequest {
  CollectiveOp op = CollectiveOp::allreduce;
  DataType type = DataType::float32;
  Operator operation = Operator::sum;
  int root = 0;
  std::uint64_t bytes = 0;  ///< a rank's larger buffer; rounded up to whole elements of every rank
  int warmup = 1;           ///< untimed pairs first
  int iterations = 10;      ///< timed pairs, at least 1
  int calls = 10;           ///< in a row, whose time is one sample
  AlgorithmOverride choice = AlgorithmOverride::planned;
};

/// One a rank; all ranks run the same rows. Not thread-safe.
class CollectiveBench {
 public:
  /// The baseline: none, NCCL, or another choice.
  struct Baseline {
    std::shared_ptr<const Nccl> nccl = nullptr;
    std::optional<AlgorithmOverride> choice = std::nullopt;
  };
  /// Collective.
  CollectiveBench(Collectives& collectives, Baseline baseline, const NodeSource& source);
  ~CollectiveBench();
  CollectiveBench(CollectiveBench&&) noexcept;
  CollectiveBench& operator=(CollectiveBench&&) = delete;

  /// Collective. The row as polypath_bench_collective() documents it, the same on all ranks: a time
  /// is that of the slowest rank. Throws Error, on all ranks, when an element is wrong.
  nlohmann::json run(const CollectiveBenchRequest& request);

  /// Microseconds of a call of the slowest rank, pair by pair.
  struct PairedUs {
    std::vector<double> first, second;
  };
  /// Collective. Rows of `request` by AlgorithmOverride::planned and by `second` in alternating
  /// pairs; the same on all ranks. Every element of `second` is compared before, and of both where
  /// `verify_both` is set. Throws as run() does.
  PairedUs compare(const CollectiveBenchRequest& request, AlgorithmOverride second,
                   bool verify_both);

  [[nodiscard]] Collectives& collectives() const noexcept { return collectives_; }

 private:
  class Buffers;
  using Way = std::function<void(const CollectiveCall&, CUstream)>;
  struct Samples {
    double us = 0;      ///< a call, median
    double cpu_us = 0;  ///< of issuing it, median
  };

  void verify(const char* name, const Way& way, Buffers& buffers, const CollectiveShape& shape,
              bool any_order);
  /// Makes calls until they go over relays, if they are to. As many on all ranks.
  void settle(const std::function<void()>& call);
  double time_row(const Way& way, const CollectiveCall& call, int calls, double* cpu_us);
  /// The buffers of the row before, if they have the same shape.
  Buffers& buffers_of(const CollectiveShape& shape, int calls);
  void agree(const std::string& problem);
  std::vector<double> slowest(const std::vector<double>& times);

  Collectives& collectives_;
  Communicator& comm_;
  Baseline baseline_;
  std::unique_ptr<NcclCommunicator> nccl_;
  ClockFunction clock_;
  std::function<void(bool)> issuing_;
  Stream stream_;
  Event start_;
  Event end_;
  std::uint64_t seed_ = 1;
  std::unique_ptr<Buffers> buffers_;
};

}  // namespace polypath
