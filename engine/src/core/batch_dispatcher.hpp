// Batches of small copies: kernels of several GPUs between host memory and a GPU, one kernel
// between two GPUs, transfers for what is large, and the driver's batch for the rest.
//
//   classify   memories of each copy, by the allocations that they lie in
//   decide     for each pair of memories: the GPUs that copy, and their shares, or the driver
//   issue      transfers, kernels, native copies, in this order
//
// Copies of a batch have no order among each other.
#pragma once

#include <functional>
#include <mutex>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/options.hpp"
#include "base/task_queue.hpp"
#include "core/block_ranges.hpp"
#include "core/transfer_dispatcher.hpp"
#include "exec/block_copier.hpp"

namespace polypath {

/// Arguments of polypath_copy_batch_async.
struct Batch {
  std::size_t count = 0;
  void* const* dst = nullptr;
  const void* const* src = nullptr;
  const std::size_t* bytes = nullptr;
  CUstream stream = nullptr;

  [[nodiscard]] CUdeviceptr dst_at(std::size_t i) const noexcept {
    return reinterpret_cast<CUdeviceptr>(dst[i]);
  }
  [[nodiscard]] CUdeviceptr src_at(std::size_t i) const noexcept {
    return reinterpret_cast<CUdeviceptr>(src[i]);
  }
};

/// Thread-safe. All functions throw the exceptions of base/error.hpp.
class BatchDispatcher {
 public:
  /// All must outlive it.
  BatchDispatcher(const NodeSource& source, const Options& options, Devices& devices,
                  ImportedMemories& imports, SharedMappings& shared, PeerProcesses& others,
                  Counters& counters, TransferDispatcher& transfers);

  /// polypath_copy_batch_async.
  void issue(const Batch& batch);
  /// polypath_try_copy_batch_async: false where all of it would go natively; nothing was done then.
  /// `midway`: it throws, and some of the batch may be under way.
  bool try_issue(const Batch& batch, bool& midway);
  /// Makes ready what batches between these memories use. Slow.
  void prepare(const std::vector<Request>& requests);
  /// Waits until nothing is left to prepare in the background.
  void wait_prepared() { preparing_.wait(); }

 private:
  /// Copies between the same two memories.
  struct Group {
    MemoryId src;
    MemoryId dst;
    std::size_t count = 0;
    std::uint64_t bytes = 0;
  };
  /// What is known of a call.
  struct Call {
    Call(const Batch& args, const NodeSource& source, Classifier& classifier, Devices& devices,
         ImportedMemories& imports)
        : batch(args), ranges(source, classifier, devices, imports) {
      last_src = last_dst = ranges.none();
    }

    const Batch& batch;
    BlockRanges ranges;
    std::vector<std::int8_t> group_of;  ///< by copy; or a constant of batch_dispatcher.cpp
    BlockRange* last_src;               ///< that the last copy had its ends in
    BlockRange* last_dst;
    std::vector<Group> groups;
    std::vector<std::pair<std::size_t, NativeReason>> native;  ///< copies, in their order
    std::vector<std::size_t> large;
    CallerStream caller;
    int caller_gpu = -1;
    Surroundings around;
  };
  /// Some of a group.
  struct Copies {
    std::size_t first = 0;  ///< those of the group from here on
    std::size_t last = 0;   ///< to here
    std::size_t count = 0;
    std::uint64_t bytes = 0;
  };
  /// How a group goes.
  struct Decision {
    Plan plan;  ///< of one transfer; its routes are empty where the group goes natively
    NativeReason reason = NativeReason::no_gain;
    [[nodiscard]] bool native() const noexcept { return plan.transfers.empty(); }
  };

  bool carry(const Batch& batch, bool may_decline, bool& midway);
  void classify(Call& call);
  /// Returns its group.
  int add_copy(Call& call, std::size_t index);
  static int find_group(Call& call, BlockRange& src, BlockRange& dst);
  [[nodiscard]] bool is_captured(CUstream stream) const;
  /// Why none of the call's copies may go by kernels, or nothing.
  std::optional<NativeReason> look_at_stream(Call& call);

  /// Whether kernels could be faster than the driver, were all links free.
  [[nodiscard]] bool may_gain(const Group& group) const;
  Decision decide(Call& call, int group, std::uint64_t without);
  Decision natively(NativeReason reason) const;
  /// The GPU that copies a part of a route.
  [[nodiscard]] int gpu_of(const Route& route, const Group& group, int caller_gpu) const;
  /// Whether the GPU's kernels reach all of the group.
  bool reaches(Call& call, int group, int gpu);
  /// Whether it may copy now. Asks for what is missing.
  bool is_usable(Call& call, int group, int gpu);
  void request(int gpu, const Group& group, std::size_t streams);
  /// Asks for imports of other processes' memory for the GPU.
  void import_ranges(Call& call, int group, int gpu);
  std::set<int> peers_of(const Group& group, int gpu) const;

  /// Copies a group by kernels.
  void run(Call& call, int group, const Decision& decision, bool& midway);
  /// Some of its copies, of `bytes` in all. What finds no room is added to the native copies.
  void run_part(Call& call, int group, Decision decision, const Copies& copies, bool& midway);
  /// Null where the group goes natively; then `decision` says why. `piece` becomes the largest size
  /// of an entry of the table.
  std::unique_ptr<BlockRun> lease(Call& call, int group, Decision& decision, std::size_t copies,
                                  std::uint64_t bytes, std::uint64_t& piece);
  [[nodiscard]] unsigned thread_blocks_of(const Group& group) const;
  static void add_native(Call& call, int group, const Copies& copies, NativeReason reason);
  /// Copies of the group from `first` on, until one of the limits is reached.
  static Copies next_copies(const Call& call, int group, std::size_t first, std::size_t max_count,
                            std::uint64_t max_bytes);
  void copy_natively(Call& call, bool in_capture);
  void copy_one(const Batch& batch, std::size_t index, std::uint64_t offset, std::uint64_t bytes);
  bool copy_as_batch(Call& call);

  [[nodiscard]] const CudaDriver& driver() const noexcept { return *source_.driver; }
  [[nodiscard]] const Node& node() const noexcept { return source_.node; }

  const NodeSource& source_;
  const Options& options_;
  Devices& devices_;
  ImportedMemories& imports_;
  PeerProcesses& others_;
  Counters& counters_;
  TransferDispatcher& transfers_;
  Classifier classifier_;
  BlockCopier blocks_;
  std::mutex mutex_;
  std::set<std::pair<int, std::set<int>>> requested_;  // that wait or are under way
  TaskQueue preparing_;  // the last member: it is joined before what its tasks use
};

}  // namespace polypath
