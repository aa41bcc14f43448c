// The collectives of a communicator: plans a call, and issues what carries it.
//
//   call -> plan (plan/collective_plan.hpp, kept by shape) -> one kernel on each rank
//                                                          -> copies and sums (schedule/)
//
// Both read and write their own rank's buffers, and the scratch of all, which is symmetric
// memory: no rank addresses another rank's buffers, so any memory of the GPU will do.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "base/error.hpp"
#include "collectives/block_budget.hpp"
#include "collectives/collective_plan_inputs.hpp"
#include "collectives/collective_types.h"
#include "collectives/host_link_load.hpp"
#include "collectives/kernel_modules.hpp"
#include "collectives/path_levels.hpp"
#include "collectives/plan/collective_plan.hpp"
#include "collectives/plan/copy_cost_table.hpp"
#include "collectives/plan/norm_plan.hpp"
#include "collectives/relay_load.hpp"
#include "collectives/relay_times.hpp"
#include "collectives/schedule/schedule_runner.hpp"
#include "comm/call_order.hpp"
#include "comm/communicator.hpp"
#include "comm/deferred_memory.hpp"
#include "plan/lru_map.hpp"

namespace polypath {

/// Elements of each rank's part of a reduce_scatter or an all_gather, by rank.
using UnevenParts = std::array<std::uint64_t, kMaxRanks>;

/// One call of one rank. `count` in elements, as CollectiveRequest has it.
struct CollectiveCall {
  CollectiveOp op = CollectiveOp::allreduce;
  DataType type = DataType::float32;
  Operator operation = Operator::sum;  ///< of those that combine
  int root = 0;                        ///< of broadcast and reduce
  std::uint64_t count = 0;
  /// Memory of this rank's GPU, aligned to its elements, not overlapping; or in place, as NCCL has
  /// it: the same, or this rank's part of the other. Null where this rank gives or gets nothing.
  CUdeviceptr send = 0;
  CUdeviceptr recv = 0;
  /// The call across nodes that this one is a part of: a hash, the same on all ranks. 0: none.
  std::uint32_t within = 0;
  /// Parts of different lengths, one after another in the buffer of all; `count` is the longest.
  /// None: all have `count`.
  std::optional<UnevenParts> parts = {};
};

/// Rows whose sum over all ranks gets a residual added and is normalised (RMSNorm), as
/// kernels/rms_norm.cuh says. Addresses are memory of this rank's GPU, aligned to 16 bytes.
struct NormCall {
  DataType type = DataType::bfloat16;  ///< or float16
  std::uint64_t rows = 0;
  std::uint64_t hidden = 0;  ///< elements of a row
  float epsilon = 0;
  CUdeviceptr input = 0;         ///< with an output of FP8 undefined after the call
  CUdeviceptr residual = 0;      ///< 0: nothing is added
  CUdeviceptr residual_out = 0;  ///< may be `residual`
  CUdeviceptr weight = 0;        ///< a row
  CUdeviceptr output = 0;        ///< may be `input`, but of FP8
  CUdeviceptr scale = 0;         ///< a float32; 0: output is of the type, else FP8 (e4m3)
};

/// Not what the plan chooses: for tests and benchmarks.
enum class NormRoute : std::uint8_t { planned, fused, apart };

/// Buffers that only this rank's call has; thrown before anything is issued.
struct RefusedBuffers : InvalidArgument {
  using InvalidArgument::InvalidArgument;
};

/// Not what the plan chooses: for tests and benchmarks.
enum class AlgorithmOverride : std::uint8_t {
  planned,  ///< what is predicted to end first
  kernels,  ///< of those that run by kernels
  lines,
  relayed,  ///< by kernels, over idle GPUs as well
  pairwise,
  alone,  ///< as planned where no GPU is idle
  hierarchical,
  published,  ///< hierarchical with one leader an island and eight chunks (IEEE Micro 2021)
  ring,
  host,        ///< flat, and part of the sums through host memory (Algorithm::mixed)
  host_trees,  ///< all through host memory, by copies
  tried,       ///< what a tuner tries (Collectives::set_trial_variant)
  uneven,      ///< of those whose kernels take parts of different lengths
};
std::string_view to_string(AlgorithmOverride choice) noexcept;
/// Throws InvalidArgument, which lists what there is.
AlgorithmOverride parse_collective_choice(std::string_view text);

struct CollectivesOptions {
  int max_blocks = 128;  ///< of a kernel, at most
  /// Left to kernels of others that wait for other GPUs as well; of all at most half.
  int reserved_sms = 0;
  /// Compares each call with those of the other ranks before it is issued: the host then waits for
  /// them. For finding mistakes.
  bool check = false;
  SumOrder order = SumOrder::rank;  ///< the same on all ranks
  /// A call whose buffers are refused is made again with others, before any other call: it aborts
  /// nothing.
  bool retries_buffers = false;
  /// Takes scratch of kernels when a call needs it first, and little of it at the beginning. Of all
  /// ranks: one that takes all at the beginning lets all do so. Without peer access all is taken.
  bool defers_scratch = false;
  /// Takes scratch and host memory for schedules of copies even where no plan chooses one.
  bool copies = false;
  /// Plans by kernels that are kept, the most recently used; of those by copies fewer.
  std::size_t max_plans = 4096;
  /// What this rank's profile holds; that of rank 0 counts.
  std::span<const TunedCollective> tuned = {};
  /// Lets other ranks store results of calls by channels straight into recv, where they address it.
  /// Each rank may choose for itself.
  bool direct_results = false;
  /// What this rank knows of its host links; must outlive the collectives. Null: nothing. Null on
  /// rank 0: calls of no rank follow the load.
  HostLinkLoad* host_links = nullptr;
  /// What relays stand on, and whether they may be used; that this rank may not, none may.
  RelaySource relays = {};
};

/// How calls went, since the beginning.
struct CollectiveCounts {
  std::uint64_t cells = 0;
  std::uint64_t lines = 0;
  std::uint64_t channels = 0;
  std::uint64_t relayed = 0;  ///< of those, over idle GPUs as well
  std::uint64_t copies = 0;   ///< of a single rank
  // Schedules of copies.
  std::uint64_t pairwise = 0;
  std::uint64_t hierarchical = 0;
  std::uint64_t ring = 0;
  std::uint64_t host_trees = 0;
  std::uint64_t mixed = 0;             ///< next to a kernel
  std::uint64_t changed_by_load = 0;   ///< that would be mixed on an idle node
  std::uint64_t without_relays = 0;    ///< that would be relayed, were relays ready on all ranks
  std::uint64_t by_first_scratch = 0;  ///< that would use the scratch that ranks take later
  std::uint64_t norms_fused = 0;       ///< of rows, by one kernel
  std::uint64_t norms_apart = 0;       ///< ... after an allreduce, which counts as well
  std::uint64_t plans = 0;             ///< made for calls of a new shape
  std::uint64_t uneven = 0;            ///< of cells and channels: those of uneven parts
  std::uint64_t fewer_blocks = 0;      ///< by kernels, while others had the blocks that it wanted
  std::uint64_t direct = 0;  ///< by channels, whose results other ranks store straight into recv
};

/// One a rank; calls as Communicator's: one thread at a time.
class Collectives {
 public:
  /// Collective: all ranks succeed, or all throw. `communicator` must outlive it. Throws
  /// NotSupported for more ranks than the kernels serve.
  Collectives(Communicator& communicator, const CollectivesOptions& options);
  /// Work that uses it must have completed; where calls have not, it aborts the communicator, and
  /// waits for them for as long as the time limit.
  ~Collectives();
  Collectives(const Collectives&) = delete;
  Collectives& operator=(const Collectives&) = delete;

  /// Issues the call on `stream` of this rank's GPU, and returns. All ranks issue the same calls in
  /// the same order; those of one communicator run one after another, also on different streams.
  /// In stream capture, the caller orders what is captured with what is not, and graphs of a
  /// communicator with each other; what would run next to a kernel runs by kernels.
  /// Throws InvalidArgument for what is wrong with an argument, and for another choice that cannot
  /// be carried out; CommunicatorError once the communicator is unusable. What may be wrong on one
  /// rank alone (buffers, the stream, errors of the driver, memory) aborts the communicator, since
  /// other ranks wait for this call. Calls that are not alike on all ranks end with an error on all
  /// of them: the kernels compare them (call_meeting.cuh).
  void run(const CollectiveCall& call, CUstream stream,
           AlgorithmOverride choice = AlgorithmOverride::planned);

  /// The same for rows that are summed and normalised.
  void run(const NormCall& call, CUstream stream, NormRoute route = NormRoute::planned);
  /// Enqueues the norm of what was summed already, at `sums`. Waits for no other rank.
  void launch_norm_alone(const NormCall& call, CUdeviceptr sums, CUstream stream);

  /// Limits the blocks of later calls' kernels; 0: as many as are best. The same on all
  /// ranks, at the same place among their calls.
  void limit_blocks(int blocks) noexcept { block_limit_ = blocks; }

  /// No call of this rank is under way, and none comes: gives its blocks back.
  void retire() noexcept { blocks_.reset(); }
  [[nodiscard]] bool is_retired() const noexcept { return blocks_ == nullptr; }

  /// How such a call is carried out, outside of capture, with reasons and bounds: for people, since
  /// those take milliseconds.
  [[nodiscard]] CollectivePlan plan(const CollectiveCall& call,
                                    AlgorithmOverride choice = AlgorithmOverride::planned) const;
  [[nodiscard]] NormPlan plan(const NormCall& call, NormRoute route = NormRoute::planned) const;
  /// What the ranks plan with, the same on all.
  [[nodiscard]] const CollectivePlanInputs& basis() const noexcept { return basis_; }
  /// The request of such a call, and what its plans may use.
  [[nodiscard]] CollectiveRequest request_of(const CollectiveCall& call) const;
  /// What a kernel over scratch of this shape may have.
  [[nodiscard]] KernelLimits limits_of(const ScratchShape& shape) const;
  [[nodiscard]] CollectiveOptions options_of(const CollectiveRequest& request,
                                             AlgorithmOverride choice) const;
  /// Follows this from now on, the same on all ranks.
  void use_tuned(std::vector<TunedCollective> tuned);
  /// What AlgorithmOverride::tried follows from now on, the same on all ranks; where it cannot run
  /// that is the cost model's plan.
  void set_trial_variant(TunedCollective way);
  [[nodiscard]] const CollectiveCounts& counts() const noexcept { return counts_; }
  /// GPUs that are no ranks, over which kernels of this communicator may go, as basis() numbers
  /// them: the same on all ranks.
  [[nodiscard]] const std::vector<int>& relays() const noexcept { return relays_; }
  /// Waits until relays that a call has asked for are ready, or cannot be had.
  void wait_relays();
  /// Waits until scratch that a call has asked for is there, or cannot be had: all ranks have made
  /// such a call.
  void wait_scratch() {
    if (rest_ != nullptr) rest_->wait();
  }
  /// Whether a call is still under way; launches of graphs are not known.
  [[nodiscard]] bool in_flight() const;
  [[nodiscard]] Communicator& communicator() const noexcept { return comm_; }
  [[nodiscard]] const KernelModules& modules() const noexcept { return *modules_; }
  [[nodiscard]] SumOrder order() const noexcept { return options_.order; }
  /// Throws InvalidArgument unless it is a stream of the rank's GPU.
  void require_stream(CUstream stream);
  /// Bytes of each host memory, which all ranks share, that are taken for as long as this exists.
  [[nodiscard]] std::uint64_t host_bytes() const noexcept {
    return runner_ ? runner_->host_bytes() : 0;
  }
  /// Bytes of this rank's GPU that are taken for as long as this exists: with `defers_scratch` more
  /// once a call has needed more.
  [[nodiscard]] std::uint64_t scratch_bytes() const noexcept;
  /// Bytes of that for kernels, once all is taken, but for lines; at the beginning; and of lines.
  [[nodiscard]] std::uint64_t max_kernel_scratch_bytes() const noexcept;
  [[nodiscard]] std::uint64_t first_scratch_bytes() const noexcept { return scratch_.bytes(); }
  [[nodiscard]] std::uint64_t line_bytes() const noexcept { return line_memory_bytes(shape_); }

 private:
  struct Shape {
    std::uint64_t count;
    CollectiveOp op;
    DataType type;
    int root;
    AlgorithmOverride choice;
    int block_limit;
    bool has_host;
    bool has_relays;
    bool has_scratch;
    friend bool operator==(const Shape&, const Shape&) = default;
  };
  struct ShapeHash {
    std::size_t operator()(const Shape& shape) const noexcept;
  };
  struct NormShape {
    std::uint64_t rows;
    std::uint64_t hidden;
    DataType type;
    NormRoute route;
    int block_limit;
    friend bool operator==(const NormShape&, const NormShape&) = default;
  };
  struct NormShapeHash {
    std::size_t operator()(const NormShape& shape) const noexcept;
  };
  /// What a plan comes to on these ranks.
  struct Launch {
    CollectivePlan plan;
    AlgorithmOverride choice = AlgorithmOverride::planned;
    OpenPaths open;
    bool uses_rest = false;  ///< the kernel runs over the scratch that ranks take later
    KernelFamily family = KernelFamily::channels;
    unsigned blocks = 0;    ///< at most; of channels, how many there are
    CollectiveArgs args{};  ///< but for buffers, operator, mark, and scratch that is taken later
    std::uint32_t how = 0;  ///< a hash of all this, the same on all ranks
    /// For what runs by copies; for mixed next to the kernel, after its elements.
    std::optional<CollectiveSchedule> schedule;
    RankProgram program;
    double without_us = 0;   ///< of what uses relays: predicted without them
    MixedTraffic traffic{};  ///< of mixed
  };

  /// By paths that are open, of those that an idle node offers.
  const Launch& launch_of(const CollectiveCall& call, AlgorithmOverride choice,
                          const OpenPaths& open = {});
  const Launch& launch_to_run(const CollectiveCall& call, AlgorithmOverride choice,
                              bool is_captured);
  /// The launch by the paths of the call's level, the same on all ranks. Counts the call: it is
  /// made now. `planned`: by all paths.
  const Launch& launch_by_level(const Launch& planned, const CollectiveCall& call, CUstream stream);
  Launch make_launch(const CollectiveCall& call, AlgorithmOverride choice, bool explain,
                     const OpenPaths& open = {}) const;
  [[nodiscard]] CollectivePlan make_plan(const CollectiveRequest& request,
                                         const CollectiveOptions& options,
                                         AlgorithmOverride choice) const;
  /// `launch`, or the same call over the scratch that is there: lets ranks take the rest, and
  /// counts the call, unless it `is_counted` already, or captured.
  const Launch& launch_by_scratch(const Launch& launch, const CollectiveCall& call, bool is_counted,
                                  bool is_captured);
  /// Whether a call that needs the rest of scratch may use it; else asks for it. As above.
  bool may_use_rest(bool is_counted, bool is_captured);
  /// Takes scratch, and asks for the rest.
  void prepare_scratch(bool is_first, bool defers);
  /// Tries the paths for lines, where a plan would use them, and takes memory for them, or has it
  /// taken later. What fails leaves lines out, on all ranks.
  void prepare_lines(bool defers);
  /// Finds the idle GPUs that all ranks may use.
  void agree_on_relays();
  /// Reserves memory there for kernels.
  void reserve_relays();
  /// Has a call by channels go over relays.
  void use_relays(const Launch& launch, UnevenArgs& args);
  /// Takes what plans need that would run an allreduce of some size by copies.
  void prepare_copies();
  void issue(const Launch& launch, const CollectiveCall& call, CUstream stream,
             std::uint64_t capture);
  /// With up to `blocks`, which this rank has for it.
  void launch_kernel(const Launch& launch, const CollectiveCall& call, unsigned blocks,
                     CUstream stream, bool is_captured);
  /// Changes what a plan may use to what runs over the scratch that was taken first, with the same
  /// bits.
  void leave_out_rest(const CollectiveRequest& request, AlgorithmOverride choice,
                      CollectiveOptions& options) const;
  [[nodiscard]] bool has_room(Algorithm algorithm, const CollectiveRequest& request, int stages,
                              const ScratchShape& shape) const;
  /// Whether the kernel runs over scratch that ranks take later; `launch` has its family.
  [[nodiscard]] bool needs_rest(const Launch& launch, const CollectiveRequest& request,
                                int stages) const;
  void set_kernel(Launch& launch, const CollectiveRequest& request, bool explain) const;
  /// The shape of the scratch that such calls may use.
  [[nodiscard]] const ScratchShape& shape_of(const OpenPaths& open) const noexcept {
    return open.scratch ? shape_ : first_shape_;
  }
  /// Lets the ranks compare a call that runs by copies.
  void launch_meeting(const Launch& launch, const CollectiveCall& call, CUstream stream,
                      bool is_captured) const;
  void launch_marked(KernelFamily family, UnevenArgs& args, unsigned blocks,
                     const CollectiveCall& call, std::uint32_t how, CUstream stream,
                     bool is_captured) const;
  /// What is the same for all calls of this rank that run over the scratch that was taken first.
  [[nodiscard]] CollectiveArgs first_args() const;
  /// Has a call run over the scratch that was taken later.
  void use_rest(CollectiveArgs& args) const;
  /// Collective, the first time: loads the kernels of uneven parts. Throws on all ranks alike.
  void load_uneven(CUstream stream);
  /// Counts a call, checks it by `require` and as all calls, and issues it. Throws as run().
  void run_counted(const CollectiveCall& call, CUstream stream,
                   const std::function<void()>& require, const std::function<void()>& issue);
  void run_norm_alone(const NormCall& call, CUstream stream, NormRoute route);
  void launch_norm_fused(const NormCall& call, const NormPlan& plan, bool uses_rest,
                         CUstream stream);
  void abort_alone(const std::exception& error);
  void run_alone(const CollectiveCall& call, CUstream stream, AlgorithmOverride choice);
  void count(const Launch& launch);

  Communicator& comm_;
  CollectivesOptions options_;
  CollectivePlanInputs basis_;
  bool has_windows_ = false;            // any rank lets others store into its recv
  std::vector<int> relays_;             // as basis_ numbers GPUs
  std::vector<int> own_relays_;         // the same, as this process does
  std::vector<TunedCollective> tried_;  // one at most
  std::shared_ptr<const KernelModules> modules_;
  std::shared_ptr<const KernelModules> uneven_modules_;  // null: no call has needed them
  std::unique_ptr<CallOrder> order_;
  std::unique_ptr<BlockShare> blocks_;  // asks order_
  ScratchShape shape_{};                // of what calls use once all is taken
  ScratchShape first_shape_{};          // of scratch_: the same, or smaller
  SymmetricMemory scratch_;
  SymmetricMemory counts_memory_;              // none: this rank's counts lie in its scratch
  SymmetricMemory lines_;                      // none: nothing goes by lines, or they are in rest_
  DeferredMemory* rest_ = nullptr;             // scratch, then lines; null: all is in scratch_
  std::optional<RelayLoad> relay_load_;        // none: there are no relays
  RelayMemory* relay_memory_ = nullptr;        // null: kernels do without relays
  std::uint32_t relay_slot_bytes_ = 0;         // of that memory
  std::optional<RelayTimes> relay_times_;      // none: the load of relays is not known
  std::unique_ptr<ScheduleRunner> runner_;     // null: kernels alone
  std::shared_ptr<CopyCostTable> copy_costs_;  // null: kernels alone
  std::optional<PathLevels> levels_;           // none: plans assume an idle node
  LruMap<Shape, Launch, ShapeHash, std::equal_to<Shape>> launches_;
  LruMap<NormShape, NormPlan, NormShapeHash, std::equal_to<NormShape>> norm_plans_;
  CollectiveCounts counts_;
  std::uint32_t number_ = 0;   // of the latest call
  std::uint32_t skipped_ = 0;  // calls of which nothing was issued
  std::uint32_t waits_ = 0;    // their number in WaitRegistry; 0: none
  CUstream checked_stream_ = nullptr;
  int block_limit_ = 0;
};

}  // namespace polypath
