// Executes spreads: the same bytes from one memory to a buffer on each of several GPUs.
//
//   issue()     classify every destination; pageable memory goes to its CPU threads
//   decide()    trees of links -> plan for the size; each round leaves out a GPU that cannot feed
//   run()       leases, copies, joins (exec/spread_run.hpp)
//   natively()  a copy for each destination: no gain, or after a failure
//
// A spread is one operation on the streams of all destinations.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "base/task_queue.hpp"
#include "core/transfer_dispatcher.hpp"
#include "exec/spread_run.hpp"
#include "plan/spread_plan.hpp"

namespace polypath {

/// The arguments of polypath_spread_async(). The arrays are the caller's.
struct Spread {
  std::size_t count = 0;
  void* const* dst = nullptr;
  CUdeviceptr src = 0;
  std::uint64_t bytes = 0;
  void* const* streams = nullptr;  ///< one for each destination

  [[nodiscard]] Transfer at(std::size_t i) const noexcept;
};

/// Thread-safe. All functions throw the exceptions of base/error.hpp.
class SpreadDispatcher {
 public:
  /// All must outlive it.
  SpreadDispatcher(const NodeSource& source, const Options& options, Devices& devices,
                   ImportedMemories& imports, SharedMappings& shared, PeerProcesses& others,
                   Counters& counters, TransferDispatcher& transfers);

  /// polypath_spread_async.
  void issue(const Spread& spread);
  /// polypath_prepare_spread. Slow.
  void prepare(MemoryId src, const std::vector<int>& gpus);
  /// Waits until nothing is left to prepare in the background.
  void wait_prepared() { preparing_.wait(); }
  /// The trees and the plan, all links being ready and free.
  std::pair<SpreadTrees, SpreadPlan> plan(MemoryId src, const std::vector<int>& gpus,
                                          std::uint64_t bytes);
  /// The node was measured anew.
  void forget();

 private:
  using TreesPtr = std::shared_ptr<const SpreadTrees>;
  using Key = std::tuple<MemoryId, std::vector<int>, std::uint64_t>;
  /// What is known of a call.
  struct Call {
    const Spread& spread;
    std::vector<ResolvedTransfer> resolved = {};     ///< of pageable memory
    std::vector<SplittableTransfer> transfers = {};  ///< without that within the source's GPU
    std::vector<std::size_t> local = {};             ///< destinations in the source's GPU
    std::vector<int> gpus = {};                      ///< of the transfers
    Surroundings around = {};
    bool is_pageable = false;
  };
  /// GPUs that feed no one, as bits, and why the last of them does not.
  struct Exclusions {
    std::uint64_t feeders = 0;
    NativeReason reason = NativeReason::no_gain;
    bool is_changed_by_load = false;
  };

  /// Nothing, or why the spread has to go as a copy for each destination. Throws InvalidArgument
  /// for what cannot be copied at all.
  std::optional<NativeReason> classify(Call& call);
  std::optional<NativeReason> classify_one(Call& call, std::size_t index);
  // Nothing: it was issued.
  std::optional<NativeReason> spread_pinned(Call& call, bool& midway);
  std::optional<NativeReason> spread_pageable(Call& call, bool& midway);
  /// Leaves out feeders that cannot carry their part now; false where there are any.
  bool all_ready(const Call& call, const SpreadTrees& trees, const SpreadPlan& plan,
                 Exclusions& without);
  /// True: it was issued. False: for the reason in `without` it was not, or has to be copied
  /// natively after it.
  bool run(const Call& call, const SpreadTrees& trees, const SpreadPlan& plan, Exclusions& without,
           bool& midway);
  void exclude(int gpu, ExclusionReason why, NativeReason native, Exclusions& without);
  void copy_local(const Call& call);
  void natively(const Spread& spread, NativeReason reason, bool is_pageable);

  /// The trees where they are known, or null: then a background thread makes them.
  TreesPtr trees_of(const Key& key);
  TreesPtr make_trees(const Key& key);
  /// Has `copies` channels of each link of the tree made ready in the background.
  void request(const SpreadTree& tree, int copies);
  void prepare_tree(const SpreadTree& tree, int copies);
  /// Whether all links of the tree are ready. Asks for what is missing.
  bool is_usable(const SpreadTree& tree);
  [[nodiscard]] bool is_ready(const SpreadTree& tree);

  [[nodiscard]] const CudaDriver& driver() const noexcept { return *source_.driver; }
  [[nodiscard]] const Node& node() const noexcept { return source_.node; }

  const NodeSource& source_;
  const Options& options_;
  Devices& devices_;
  PeerProcesses& others_;
  Counters& counters_;
  TransferDispatcher& transfers_;
  Classifier classifier_;
  std::mutex mutex_;
  std::map<Key, TreesPtr> trees_;
  std::set<Key> wanted_;                     // are being made
  std::map<int, Retry> unprepared_;          // trees that could not be, by their feeds
  std::set<std::pair<int, int>> requested_;  // (feed, copies) that wait or are under way
  TaskQueue preparing_;  // the last member: it is joined before what its tasks use
};

}  // namespace polypath
