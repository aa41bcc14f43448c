// The context: wires the node, its driver and what carries transfers (transfer_dispatcher.hpp)
// together, and keeps what is known of the node. The C API is a thin shell around it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/options.hpp"
#include "core/batch_dispatcher.hpp"
#include "core/context_change.hpp"
#include "core/copy_engine.hpp"
#include "core/split_thresholds.hpp"
#include "core/spread_dispatcher.hpp"
#include "core/transfer_dispatcher.hpp"
#include "tune/measure_links.hpp"
#include "tune/profile_update.hpp"
#include "tune/tuned_transfer_profile.hpp"

namespace polypath {

/// Thread-safe, but for measure(). All functions throw the exceptions of base/error.hpp.
class Context final : public CopyEngine {
 public:
  /// Throws Error in a child of a fork that another thread's ContextChange met.
  explicit Context(const OptionArguments& arguments);
  /// On a node that was opened elsewhere (tests give a fault-injecting driver).
  Context(NodeSource source, const OptionArguments& arguments);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  /// polypath_copy_async.
  void copy_async(const Transfer& transfer) override;
  /// polypath_try_copy_async: whether it was issued. `midway`: it throws because
  /// copies are under way that the stream does not wait for.
  bool try_copy_async(const Transfer& transfer, bool& midway);
  bool try_copy_async(const Transfer& transfer) {
    bool midway = false;
    return try_copy_async(transfer, midway);
  }
  /// polypath_group_copy_async.
  void group_copy_async(std::span<const Transfer> transfers) override;
  /// The same by `plan`, made for just these transfers, instead of the planner's.
  void follow(std::span<const Transfer> transfers, const PreparedPlan& plan);
  /// polypath_try_group_copy_async; `issued` is 0 before, and has a place for each.
  void try_group_copy_async(std::span<const Transfer> transfers, std::span<int> issued);
  /// polypath_copy_batch_async.
  void copy_batch_async(const Batch& batch);
  /// polypath_try_copy_batch_async: whether it was issued. `midway` as of try_copy_async().
  bool try_copy_batch_async(const Batch& batch, bool& midway);
  /// polypath_read_async.
  void read_async(const FileRead& read);
  /// polypath_prepare_batches.
  void prepare_batches(const std::vector<Request>& requests);
  /// polypath_spread_async.
  void spread_async(const Spread& spread);
  /// polypath_prepare_spread.
  void prepare_spread(MemoryId src, const std::vector<int>& gpus);
  /// The trees and the plan of polypath_plan_spread.
  std::pair<SpreadTrees, SpreadPlan> plan_spread(MemoryId src, const std::vector<int>& gpus,
                                                 std::uint64_t bytes);
  /// polypath_ipc_register_export.
  void memory_exported(const CUipcMemHandle& handle, CUdeviceptr address);
  /// polypath_ipc_register_import, in the current CUDA context.
  void memory_imported(const CUipcMemHandle& handle, CUdeviceptr address);
  void memory_imported(const CUipcMemHandle& handle, CUdeviceptr address, int holder) override;
  /// polypath_ipc_unregister_import.
  void memory_closed(CUdeviceptr address) override { imports_.closed(address); }
  /// polypath_share_mapping.
  void share_mapping(CUdeviceptr address, std::uint64_t bytes);
  /// polypath_unshare_mapping.
  void unshare_mapping(CUdeviceptr address, std::uint64_t bytes) { shared_.remove(address, bytes); }
  [[nodiscard]] SharedMappings& shared_mappings() noexcept { return shared_; }
  /// polypath_prepare.
  void prepare(const std::vector<Request>& requests);
  /// Waits until the background thread has nothing left to prepare.
  void wait_prepared() {
    dispatcher_.wait_prepared();
    batches_.wait_prepared();
    spreads_.wait_prepared();
  }

  Plan plan(const std::vector<Request>& requests);
  /// polypath_split_thresholds.
  Thresholds smallest_split();
  /// Throws InvalidArgument where no profile can be kept, since its place is taken by something
  /// else than a file: to be asked before a measurement.
  void require_place_of_profile() const;
  /// polypath_measure.
  void measure(const ProgressFunction& progress);

  [[nodiscard]] Planner& planner() noexcept { return dispatcher_.planner(); }
  // What others put into the profile meanwhile stays there (tune/profile_update.hpp).

  /// Keeps it in the profile, in the place of what is known of the same, and follows it from now
  /// on.
  void save_tuned_transfer(TunedTransfer entry);
  /// Keeps what a part above the engine tuned, as save_tuned_transfer() does: in tuned() from now
  /// on.
  template <typename Entry>
  void save_tuned(Entry entry) {
    const std::lock_guard lock(profile_mutex_);
    put(std::move(entry));
    save();
  }
  /// What is known. Other threads may save more meanwhile, so source() is not read for it.
  template <typename Entry>
  [[nodiscard]] ProfileTable<Entry> tuned() const {
    const std::lock_guard lock(profile_mutex_);
    return source_.tables.table<Entry>();
  }
  /// Sets `object[key]` to what is known of each kind.
  void tuned_to_json(nlohmann::json& object) const;
  /// State of the profile's file: loaded, made or refused.
  [[nodiscard]] std::string profile_state() const;

  [[nodiscard]] const NodeSource& source() const noexcept { return source_; }
  [[nodiscard]] const Node& node() const noexcept { return source_.node; }
  [[nodiscard]] const CudaDriver& driver() const noexcept { return *source_.driver; }
  [[nodiscard]] const Options& options() const noexcept { return options_; }
  [[nodiscard]] const std::vector<OptionInfo>& option_infos() const noexcept { return infos_; }
  /// Bytes of the pinned slots that pageable memory is copied by.
  [[nodiscard]] std::uint64_t pinned_slot_bytes() { return dispatcher_.pageable().pinned_bytes(); }
  /// That copy pageable memory; 1: none do.
  [[nodiscard]] int copy_threads() { return dispatcher_.pageable().threads(); }
  [[nodiscard]] Counters& counters() noexcept { return counters_; }
  [[nodiscard]] RouteResources& resources() noexcept { return dispatcher_.resources(); }
  [[nodiscard]] LoadMonitor& load() noexcept { return dispatcher_.load(); }
  [[nodiscard]] Devices& devices() noexcept { return devices_; }
  /// What would carry these transfers, were all routes ready.
  [[nodiscard]] ExecutorKind executor_for(const std::vector<Request>& requests);
  [[nodiscard]] GraphCache::Counts graph_counts() { return dispatcher_.graph_counts(); }
  void reset_counters();

 private:
  Context(const OptionArguments& arguments, const ContextChange& change);
  /// Whether native copies are this driver's too: the caller's own would not go over an emulated
  /// link.
  [[nodiscard]] bool copies_natively() const noexcept { return source_.emulated_mesh_gbps > 0; }
  /// Throws InvalidArgument for memories that are not on the node.
  void check(const std::vector<Request>& requests) const;
  void check_spread(MemoryId src, const std::vector<int>& gpus) const;
  void issue(const Transfer& transfer, const PreparedPlan* plan);
  void issue_group(std::span<const Transfer> transfers, const PreparedPlan* plan);
  template <typename Entry>
  void put(Entry entry) {
    source_.tables.table<Entry>().put(entry);
    news_.tables.table<Entry>().put(std::move(entry));
  }
  void save();

  std::optional<ContextChange> end_;  ///< first, so that it outlives the others
  std::vector<OptionInfo> infos_;
  Options options_;
  NodeSource source_;
  Counters counters_;
  PeerProcesses others_;
  Devices devices_;
  ImportedMemories imports_;
  SharedMappings shared_;
  TransferDispatcher dispatcher_;
  BatchDispatcher batches_;
  SpreadDispatcher spreads_;
  // Guards source_.tables and .profile_state, news_ and the file: ranks that are threads save and
  // read.
  mutable std::mutex profile_mutex_;
  ProfileUpdate news_;
  std::atomic<bool> unplaced_{false};  // memory of another process was met that has no known place
};

}  // namespace polypath
