// The context: wires driver, topology, planner, resources and executor together, and carries a transfer
// from its addresses to its copies. The C API is a thin shell around it.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "base/options.hpp"
#include "core/counters.hpp"
#include "core/mesh_emulation.hpp"
#include "core/node_source.hpp"
#include "core/other_processes.hpp"
#include "core/planner.hpp"
#include "core/pointer_info.hpp"
#include "core/preparer.hpp"
#include "core/thresholds.hpp"
#include "exec/graph_executor.hpp"
#include "exec/imported_memory.hpp"
#include "tune/measure_links.hpp"

namespace polypath {

/// Addresses of one transfer, as the caller gave them.
struct Transfer {
  CUdeviceptr dst = 0;
  CUdeviceptr src = 0;
  std::uint64_t bytes = 0;
  CUstream stream = nullptr;
};

/// Whether a stream stands for one of the context that is current.
bool is_special_stream(CUstream stream) noexcept;

/// Thread-safe, but for measure(). All functions throw the exceptions of base/error.hpp.
class Context {
 public:
  explicit Context(const OptionArguments& arguments);
  /// On a node that was opened elsewhere (tests give a fault-injecting driver).
  Context(NodeSource source, const OptionArguments& arguments);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  /// polypath_copy_async.
  void copy_async(const Transfer& transfer);
  /// polypath_try_copy_async: whether it was issued. A DriverError comes after the first copy.
  bool try_copy_async(const Transfer& transfer);
  /// polypath_group_copy_async.
  void group_copy_async(std::span<const Transfer> transfers);
  /// polypath_memory_exported.
  void memory_exported(const CUipcMemHandle& handle, CUdeviceptr address);
  /// polypath_memory_imported, in the current CUDA context.
  void memory_imported(const CUipcMemHandle& handle, CUdeviceptr address);
  /// The same of memory on GPU `holder`, -1 for unknown, whatever others said.
  void memory_imported(const CUipcMemHandle& handle, CUdeviceptr address, int holder);
  /// polypath_memory_closed.
  void memory_closed(CUdeviceptr address) { imports_.closed(address); }
  /// polypath_prepare.
  void prepare(const std::vector<Request>& requests);
  /// Waits until the background thread has nothing left to prepare.
  void wait_prepared() { preparer_.wait(); }

  Plan plan(const std::vector<Request>& requests);
  /// polypath_smallest_split.
  Thresholds smallest_split();
  /// polypath_measure.
  void measure(const ProgressFunction& progress);

  /// For tuning: no transfer may be under way, and one thread at a time.
  [[nodiscard]] Planner& planner() noexcept { return planner_; }
  /// Keeps these choices in the profile, and follows them from now on.
  void keep_tuned(std::vector<TunedChoice> tuned);

  [[nodiscard]] const NodeSource& source() const noexcept { return source_; }
  [[nodiscard]] const Node& node() const noexcept { return source_.node; }
  [[nodiscard]] const CudaDriver& driver() const noexcept { return *source_.driver; }
  [[nodiscard]] const Options& options() const noexcept { return options_; }
  [[nodiscard]] const std::vector<OptionInfo>& option_infos() const noexcept { return infos_; }
  [[nodiscard]] Counters& counters() noexcept { return counters_; }
  [[nodiscard]] RouteResources& resources() noexcept { return resources_; }
  [[nodiscard]] Devices& devices() noexcept { return devices_; }
  /// By which every copy is issued.
  [[nodiscard]] const CopyEngine& copies() const noexcept { return copies_; }
  /// Null when none is emulated.
  [[nodiscard]] const EmulatedMesh* mesh() const noexcept { return mesh_.get(); }
  /// What would carry these transfers, were all routes ready.
  [[nodiscard]] ExecutorKind executor_for(const std::vector<Request>& requests);
  [[nodiscard]] GraphCache::Counts graph_counts();
  void reset_counters();

 private:
  /// A transfer whose memories and stream allow it to be split.
  struct Splittable {
    Transfer transfer;
    Request request;
    CallerStream caller;
    int caller_gpu = 0;
    unsigned long long dst_buffer = 0;
    unsigned long long src_buffer = 0;
    std::shared_ptr<ImportedMemory> dst_import;  ///< null for memory of this process
    std::shared_ptr<ImportedMemory> src_import;
    std::uint64_t unreachable = 0;  ///< staging memories out of reach, as bits of the planner
  };
  /// Either what to split, or why not.
  struct Classified {
    std::optional<Splittable> splittable;
    NativeReason reason = NativeReason::no_gain;
  };
  /// Staging memories to plan without, and why the last of them was left out.
  struct Exclusions {
    std::uint64_t memories = 0;
    NativeReason reason = NativeReason::no_gain;
  };

  /// Issues a transfer that is to be split; otherwise does nothing and says why not.
  std::optional<NativeReason> issue_split(const Transfer& transfer);
  void issue_group(std::span<const Transfer> transfers);
  /// Throws InvalidArgument for what cannot be copied at all. `alone`: not one of a group.
  Classified checked(const Transfer& transfer, bool alone);
  Classified classify(const Transfer& transfer, bool alone);
  PointerInfo checked_info(const char* argument, CUdeviceptr address, std::uint64_t bytes);
  std::optional<MemoryId> memory_of(CUdeviceptr address, const PointerInfo& info);
  CallerStream caller_of(CUstream stream);
  std::uint64_t unreachable_for(const PointerInfo& dst, CUdeviceptr address, std::uint64_t bytes);
  void native_copy(const Transfer& transfer, NativeReason reason);
  /// A copy on another GPU's stream is slow to start unless that GPU's context is current, and the
  /// transfers of a group have streams of several.
  void native_copy_in_its_context(const Transfer& transfer, NativeReason reason);
  /// Nothing, or why all of them have to go natively.
  std::optional<NativeReason> split(std::vector<Splittable>& group);
  /// Whether a transfer over the plan's routes is under way on another stream.
  bool in_window(const PreparedPlan& prepared, const Splittable& one);
  /// Whether its stream holds no work.
  bool idle(const Splittable& one);
  bool try_plan(const PreparedPlan& prepared, const std::vector<Splittable>& group,
                Exclusions& without);
  /// Has the routes to and from `gpu` prepared for memory that will probably be copied over them.
  void prepare_for(const std::shared_ptr<ImportedMemory>& memory, int gpu);
  /// Waits until the plan's routes are ready, or have failed to be.
  void prepare_now(const Plan& plan, const std::vector<Splittable>& group);
  /// Asks for what is missing, and leaves out its routes.
  bool all_ready(const Plan& plan, const std::vector<Splittable>& group, Exclusions& without);
  /// Whether the GPUs that issue the first and the last leg reach the ends. Asks for what is missing.
  enum class Reach : std::uint8_t { yes, not_yet, never };
  Reach reach(const Route& route, const Splittable& one);
  RouteEnds ends_of(const Route& route, const Splittable& one);
  std::optional<std::vector<BoundTransfer>> bind(const Plan& plan,
                                                 const std::vector<Splittable>& group,
                                                 Exclusions& without);
  void save();
  void leave_out(const Route& route, LeftOutReason why, NativeReason native, Exclusions& without);

  std::vector<OptionInfo> infos_;
  Options options_;
  NodeSource source_;
  std::uint64_t never_split_below_;
  Counters counters_;
  OtherProcesses others_;
  Devices devices_;
  ImportedMemories imports_;
  std::unique_ptr<EmulatedMesh> mesh_;
  CopyEngine copies_;
  RouteResources resources_;
  Planner planner_;
  StreamExecutor streams_;
  GraphExecutor graphs_;
  Preparer preparer_;
  std::atomic<std::uint64_t> runs_{0};
  std::atomic<bool> unplaced_{false};  // memory of another process was met that has no known place
};

}  // namespace polypath
