// Executes transfers: plan, ready routes, leases, copies, and the native copy if the plan does not
// split.
//
//   issue()         classify, then split()
//   split()         plan -> all_ready -> bind -> run; each round leaves out what is not ready
//   native_copy()   what issue() gave a reason for
#pragma once

#include <atomic>
#include <bit>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "base/options.hpp"
#include "base/task_queue.hpp"
#include "core/classifier.hpp"
#include "core/counters.hpp"
#include "core/load_monitor.hpp"
#include "core/own_transfers.hpp"
#include "core/peer_processes.hpp"
#include "core/preparer.hpp"
#include "exec/graph_executor.hpp"
#include "exec/pageable_copies.hpp"
#include "exec/retry.hpp"
#include "plan/planner.hpp"

namespace polypath {

/// What is known of others when transfers are planned.
struct Surroundings {
  LoadLook look;
  /// Pairs of memories that other processes, and other streams of this one, send between at the
  /// same time, with 0 bytes; without the transfers' own pairs.
  std::vector<Request> concurrent;
  std::optional<OwnTransfers::Start> own;  ///< the transfers themselves
};

/// Thread-safe. All functions throw the exceptions of base/error.hpp.
class TransferDispatcher {
 public:
  /// All must outlive it.
  TransferDispatcher(const NodeSource& source, const Options& options, Devices& devices,
                     ImportedMemories& imports, SharedMappings& shared, PeerProcesses& others,
                     Counters& counters);
  ~TransferDispatcher();
  TransferDispatcher(const TransferDispatcher&) = delete;
  TransferDispatcher& operator=(const TransferDispatcher&) = delete;

  /// Issues a transfer if its plan splits it. Otherwise it does nothing and returns the reason.
  /// `prepared`: the plan to follow instead of the planner's, as far as its routes are ready and
  /// free. A transfer that failed midway must be copied natively as well, after what was issued of
  /// it. `midway` is set where it throws because the stream does not wait for all of that.
  std::optional<NativeReason> issue(const Transfer& transfer, const PreparedPlan* prepared,
                                    bool& midway);
  /// Issues all, by copies of the driver where they are not to be split. Those of one stream go in
  /// this order, those of different streams at once.
  void issue_group(std::span<const Transfer> transfers, const PreparedPlan* prepared = nullptr);
  /// Issues the transfers that plans split, and sets issued[i] = 1. If it throws, issued[i] is also
  /// 1 for a transfer of which a copy was issued.
  void try_issue_group(std::span<const Transfer> transfers, std::span<int> issued);
  void native_copy(const Transfer& transfer, NativeReason reason);
  /// Copies a part of a file to a GPU, and returns when it has been read. Throws FileError when it
  /// cannot be read: nothing of the transfer is under way then, and the contents of the destination
  /// are undefined.
  void read(const FileRead& read);
  /// The caller will copy it natively.
  void decline(const Transfer& transfer, NativeReason reason);

  /// Makes all that the transfers may need, alone and together. Slow.
  void prepare(const std::vector<Request>& requests);
  /// Has the routes to and from `gpu` prepared that such memory will probably be copied over: those
  /// of the largest splittable transfers so far that had memory of another process at an end.
  /// Before the first of them none: contexts and staging memory are not for programs that open
  /// memory and copy nothing large.
  void prepare_for(const std::shared_ptr<ImportedMemory>& memory, int gpu);
  /// Waits until nothing is left to plan and to prepare in the background.
  void wait_prepared();

  /// The smallest transfer from or to pageable memory that is not left to the driver; UINT64_MAX:
  /// none is.
  std::uint64_t min_pageable_bytes(bool is_to_gpu);
  /// Makes all that a transfer of pageable memory may need. Slow.
  void prepare_pageable(const Request& request);
  /// The plan of a transfer whose host memory is pageable, all routes being ready.
  PageablePlan pageable_plan(const Request& request);
  [[nodiscard]] PageableCopies& pageable() noexcept { return pageable_; }
  /// The node was measured anew: plans of pageable memory are made again.
  void forget_pageable_plans();
  /// Copies the same pageable memory to all destinations by CPU threads, as one operation on their
  /// streams. Nothing, or why each has to go by itself; `parts` receives what each GPU fetched of
  /// it. `midway` as of issue().
  std::optional<NativeReason> spread_pageable(std::span<const ResolvedTransfer> ends,
                                              std::map<int, std::uint64_t>& parts, bool& midway);
  /// Makes all that such a spread may need. Slow.
  void prepare_pageable_spread(MemoryId src, const std::vector<int>& gpus);

  /// What is known now of the load of links, and of what is under way, for transfers that are
  /// planned together; `streams`: the key of each one's stream (LoadMonitor::stream_key()).
  /// `alone`: their plan if nothing else ran; null: native copies.
  Surroundings look_around(std::span<const Request> requests,
                           std::span<const std::uintptr_t> streams, const Plan* alone = nullptr);
  /// The same for these, by the streams of their callers.
  Surroundings look_around(std::span<const SplittableTransfer> transfers,
                           const Plan* alone = nullptr);
  /// The transfers of look_around() from number `first` on are about to be issued as `plan` says.
  void note_plan(const Surroundings& around, std::size_t first, const Plan& plan);
  /// A copy on another GPU's stream is slow to start unless that GPU's context is current, and the
  /// transfers of a group have streams of several.
  void native_copy_in_its_context(const Transfer& transfer, NativeReason reason);

  /// Transfers of fewer bytes are never split.
  [[nodiscard]] std::uint64_t min_split_bytes() const noexcept { return never_split_below_; }
  [[nodiscard]] Planner& planner() noexcept { return planner_; }
  [[nodiscard]] RouteResources& resources() noexcept { return resources_; }
  [[nodiscard]] LoadMonitor& load() noexcept { return load_; }
  [[nodiscard]] GraphCache::Counts graph_counts() const { return graphs_.counts(); }
  void reset_graph_counts() { graphs_.reset_counts(); }

 private:
  /// Staging memories to plan without, as bits of the planner, and why the last of them was left
  /// out.
  struct Exclusions {
    std::uint64_t memories = 0;
    NativeReason reason = NativeReason::no_gain;
    bool is_preparing = false;  ///< some were left out because they are being prepared
    bool is_changed_by_load = false;
  };

  /// One transfer of a group.
  struct Member {
    std::size_t index = 0;  ///< in the group
    int round = 0;          ///< how many of the group come before it on its stream
    NativeReason reason = NativeReason::no_gain;
    std::optional<SplittableTransfer> splittable;  ///< nothing: it goes natively, for that reason
    std::optional<ResolvedTransfer> pageable;      ///< it is asked then
  };
  /// Throws InvalidArgument for what cannot be copied at all.
  std::vector<Member> members_of(std::span<const Transfer> transfers);
  /// Issues the transfers that plans split, in rounds of one per stream, and sets issued[i] = 1.
  /// Calls `native` for the others.
  void issue_rounds(std::span<const Transfer> transfers, std::span<int> issued,
                    const PreparedPlan* prepared,
                    const std::function<void(std::size_t, NativeReason)>& native);

  /// Transfers of pageable memory that threads copy about as fast.
  struct PageableClass {
    explicit PageableClass(const Request& request) noexcept
        : is_to_gpu(request.src.is_host()), size(std::bit_width(request.bytes)) {}
    bool is_to_gpu;
    int size;  ///< bits of the number of bytes
    auto operator<=>(const PageableClass&) const = default;
  };

  using PlanPtr = std::shared_ptr<const PreparedPlan>;
  /// `served`: null for one of a group; else it receives the planner's plan of the transfer alone,
  /// unless `prepared` is given. `pageable`: receives the transfer where the reason is that.
  /// Throws InvalidArgument for what cannot be copied at all.
  std::variant<SplittableTransfer, NativeReason> classify(
      const Transfer& transfer, const PreparedPlan* prepared, PlanPtr* served,
      std::optional<ResolvedTransfer>& pageable);
  /// Copies to or from pageable memory by CPU threads. Nothing, or why it has to go natively.
  /// `midway` as of issue().
  std::optional<NativeReason> copy_pageable(const ResolvedTransfer& ends, bool& midway);
  /// How threads copy, and what became of it.
  struct ThreadCopy {
    /// The plan and the GPU's own link are waited for, where they are not ready.
    bool waits_for_link = false;
    bool is_further_part = false;  ///< threads copied an earlier part of it, on the same stream
    bool lacks_routes = false;     ///< some were not ready: a later copy may take more
  };
  /// The same from or to `host`. Throws FileError.
  std::optional<NativeReason> copy_by_threads(const ResolvedTransfer& ends, const HostSide& host,
                                              ThreadCopy& how, bool& midway);
  /// To one end, or to several GPUs: `parts` receives then what each of them fetched.
  std::optional<NativeReason> try_by_threads(std::span<const ResolvedTransfer> ends,
                                             const HostSide& host,
                                             std::map<int, std::uint64_t>* parts, ThreadCopy& how,
                                             bool& midway);
  /// What is read, and to where; or why threads cannot.
  std::variant<ResolvedTransfer, NativeReason> ends_of(const FileRead& read);
  [[nodiscard]] PageableLimits pageable_limits() const noexcept;
  /// Has them found in the background, once.
  void find_pageable_limits();
  /// Reads pieces into memory of the process, which the driver copies.
  void read_natively(const FileRead& read, NativeReason reason);
  /// Nothing, or why pageable memory cannot be copied to it.
  std::optional<NativeReason> classify_pageable(std::span<const ResolvedTransfer> ends,
                                                std::vector<SplittableTransfer>& transfers);
  /// Leaves out routes that cannot carry it now, and asks for what they lack; false where there are
  /// any.
  bool all_pageable_ready(const PageablePlan& plan,
                          const std::vector<SplittableTransfer>& transfers, const LoadLook& look,
                          bool waits_for_link, Exclusions& without);
  /// Has the plan's routes made ready in the background, or waits for it.
  void prepare_pageable(const PageablePlan& plan);
  using PageablePlanPtr = std::shared_ptr<const PageablePlan>;
  /// The plan without these staging memories, from a cache. Null: the routes are not known yet,
  /// unless the call waits for them.
  PageablePlanPtr plan_by_threads(const Request& request, bool is_file, std::uint64_t without,
                                  bool waits);
  /// Whether threads may copy: they were fast the last time, or are tried again.
  bool may_try_threads(const Request& request);
  /// They took result.threads_us where the driver is said to take `native_us`.
  void note_threads(const Request& request, const PageableResult& result, double native_us);
  void prepare_pageable_now(const PageablePlan& plan);
  void prepare_route_now(const PageablePlan& plan, std::size_t route);
  /// Tells the monitor of a native copy before it is issued.
  void note_native(const Transfer& transfer, NativeReason reason);
  void count_native(const Transfer& transfer, NativeReason reason);

  /// Nothing, or why all of them have to go natively. `served`: the planner's plan of the group
  /// alone, or null. `midway` as of issue().
  std::optional<NativeReason> split(const std::vector<SplittableTransfer>& group,
                                    const PreparedPlan* prepared, PlanPtr served, bool& midway);
  /// As split(), but may fail before anything was issued.
  std::optional<NativeReason> follow_plans(const std::vector<SplittableTransfer>& group,
                                           const PreparedPlan* prepared, PlanPtr served,
                                           bool& midway);
  /// What to follow of a plan as the first transfer's stream and links are now.
  const PreparedPlan& select_variant(const PreparedPlan& plan, const SplittableTransfer& first);
  /// Whether the transfer's staged routes hold work of another stream.
  bool is_used_by_another(const TransferPlan& transfer, const CallerStream& caller);
  /// Whether a transfer over the plan's routes is under way on another stream.
  bool in_window(const PreparedPlan& prepared, const SplittableTransfer& transfer);
  /// Whether the stream, which must not be capturing, holds no work.
  bool idle(CUstream stream);
  /// Has the route serve `copies` transfers at once; transfers that wait for preparation wait for
  /// this as well, so that later ones do not depend on the time that it takes.
  void widen(const Route& route, int copies);
  /// `follows_load`: false where the plan was given, and is followed regardless of others.
  bool try_plan(const PreparedPlan& prepared, const std::vector<SplittableTransfer>& group,
                const LoadLook& look, bool follows_load, Exclusions& without, bool& midway);
  /// Whether transfers of other streams run at the same time, and the plan gains less than they may
  /// lose: their calls wait for the CPU to issue it.
  [[nodiscard]] bool gains_too_little(const Plan& plan, const Surroundings& around) const;
  /// Leaves out routes with a link that others use; false where there is none.
  bool leave_out_loaded(const Plan& plan, const LoadLook& look, Exclusions& without);

  /// Leaves out routes that are not ready, and asks for what they lack; not for other routes that
  /// only serve until then.
  bool all_ready(const Plan& plan, const std::vector<SplittableTransfer>& group,
                 Exclusions& without);
  /// Waits until the plan's routes are ready, or have failed to be.
  void prepare_now(const Plan& plan, const std::vector<SplittableTransfer>& group);
  /// Whether the GPUs that issue the first and the last leg reach the ends. `asks`: for what is
  /// missing. `saved_us`: by this route; 0: no GPU is given access.
  enum class AccessState : std::uint8_t { yes, not_yet, failed, denied };
  AccessState reach(const Route& route, const SplittableTransfer& transfer, bool asks,
                    double saved_us);
  /// Asks for what the plan's routes lack; false where they lack nothing, or nothing can be asked.
  bool request_routes(const Plan& plan, const std::vector<SplittableTransfer>& group);
  /// The same once the plan of these transfers is known. For one group at a time.
  void prepare_later(const std::vector<SplittableTransfer>& group);
  /// Notes the size of a transfer that a plan splits.
  void note_import(const SplittableTransfer& transfer);
  RouteEnds ends_of(const Route& route, const SplittableTransfer& transfer);
  std::vector<BoundTransfer> bind(const Plan& plan, const std::vector<SplittableTransfer>& group);
  void exclude(const Route& route, ExclusionReason why, NativeReason native, Exclusions& without);

  [[nodiscard]] const CudaDriver& driver() const noexcept { return *source_.driver; }
  [[nodiscard]] const Node& node() const noexcept { return source_.node; }

  const NodeSource& source_;
  const Options& options_;
  std::uint64_t never_split_below_;
  Devices& devices_;
  ImportedMemories& imports_;
  PeerProcesses& others_;
  Counters& counters_;
  Classifier classifier_;
  RouteResources resources_;
  LoadMonitor load_;
  OwnTransfers own_;
  Planner planner_;
  StreamExecutor streams_;
  GraphExecutor graphs_;
  PageableCopies pageable_;
  std::mutex pageable_mutex_;
  // GPUs over which routes for pageable memory could not be made ready.
  std::map<int, Retry> unprepared_;
  // By ends, bytes, whether it is a file, and staging memories left out.
  std::map<std::tuple<MemoryId, MemoryId, std::uint64_t, bool, std::uint64_t>, PageablePlanPtr>
      pageable_plans_;
  // Transfers whose threads were slower than the driver's copy is: where CPUs are busy.
  std::map<PageableClass, Retry> slow_threads_;
  std::atomic<std::uint64_t> min_pageable_to_gpu_{0};  // as PageableLimits
  std::atomic<std::uint64_t> min_pageable_from_gpu_{0};
  std::atomic<bool> finds_pageable_limits_{false};
  bool prepares_pageable_ = false;  // a task is queued
  Preparer preparer_;
  // Bytes of the largest splittable transfer, from and to memory of another process.
  std::atomic<std::uint64_t> largest_from_import_{0};
  std::atomic<std::uint64_t> largest_to_import_{0};
  std::atomic<bool> prepares_later_{false};
  TaskQueue planning_;  // the last member: it is joined before what its tasks use
};

}  // namespace polypath
