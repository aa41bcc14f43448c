// What algorithms by copies take on the ranks of a communicator, at sizes that are powers of two.
// Between two sizes costs and parts are interpolated, so that a call of a new count times no
// schedule: timing them takes milliseconds, and a plan has to be the same on all ranks, so no
// background thread can decide.
//
//   at 2^k bytes              the fastest plan, its number of chunks (and lanes)
//   between 2^k and 2^(k+1)   in as many chunks as at one end, or their mean, timed at both ends:
//                             time, and the kernel's part of mixed, are linear in bytes. Of these
//                             numbers of chunks the one that is faster there
//   beyond the largest size   its chunk bytes, the part in proportion, time linear in bytes
//
// An entry is a pure function of the node, the GPUs and the options: it does not matter when it is
// computed, or by which thread.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "collectives/plan/algorithm_cost.hpp"

namespace polypath {

/// Thread-safe. An entry is computed once, by the thread that needs it first; others wait for it.
class CopyCostTable {
 public:
  CopyCostTable(Node node, std::vector<int> gpus);

  /// The table of these GPUs in this process: communicators of the same ranks share one. The last
  /// kMaxShared tables are kept.
  static std::shared_ptr<CopyCostTable> shared(const Node& node, const std::vector<int>& gpus);

  /// The cost of a request on one node, by `algorithm`, which runs by copies and can run there. As
  /// cost_by_copies() for sizes that are powers of two, and small ones. No stages.
  AlgorithmCost cost(const CollectiveRequest& request, const CollectiveOptions& options,
                     Algorithm algorithm);

  /// Computes all that plans of allreduces of any count and type need with these options and in
  /// this order, so
  /// that the first call of a new count times no schedule on its caller's thread. What
  /// fails is computed when it is needed.
  void fill_allreduce(const CollectiveOptions& options, SumOrder order = SumOrder::rank) noexcept;

  [[nodiscard]] bool is_for(const Node& node, const std::vector<int>& gpus) const {
    return node == node_ && gpus == gpus_;
  }

 private:
  /// How a message is cut; no chunks: as is best.
  struct Cut {
    int lanes;
    int chunks;
    friend auto operator<=>(const Cut&, const Cut&) = default;
  };
  struct Key {
    CollectiveOp op;
    Algorithm algorithm;
    SumOrder order;
    bool widens;  // partial sums have twice the size of elements
    bool kernels;
    int root;
    KernelLimits limits;
    int log2_bytes;
    Cut cut;
    std::uint64_t scratch_bytes;
    std::uint64_t host_bytes;

    friend auto operator<=>(const Key&, const Key&) = default;
  };
  /// At a size: what its plan is made of, in bytes, since elements may have another type.
  struct Entry {
    AlgorithmCost cost;
    std::uint64_t bytes = 0;         // of the request
    std::uint64_t kernel_bytes = 0;  // mixed: what the kernel carries
  };
  /// What is asked about, at any size.
  struct Question {
    const CollectiveRequest& request;
    const CollectiveOptions& options;
    Algorithm algorithm;
  };

  const Entry& entry(const Question& question, int log2_bytes, Cut cut = {0, 0});
  [[nodiscard]] AlgorithmCost time_entry(const CollectiveRequest& request,
                                         const CollectiveOptions& options, Algorithm algorithm,
                                         Cut cut) const;
  /// At the size of the request: between those of `low` and `high`, or beyond the largest one.
  Entry interpolated(const Question& question, const Entry& low, const Entry& high, int high_log2);
  static Entry extrapolated(const Question& question, const Entry& low, const Entry& high);
  /// The parts of mixed. `is_timed`: at a size of the table, so that both parts end together.
  [[nodiscard]] AlgorithmCost split_mixed(const Question& question, const Entry& entry,
                                          bool is_timed) const;
  [[nodiscard]] Cut cut_of(const Entry& entry) const;

  const Node node_;
  const std::vector<int> gpus_;
  const std::vector<std::vector<int>> islands_;  // of hierarchical
  std::mutex mutex_;
  std::map<Key, Entry> entries_;
};

}  // namespace polypath
