// A matcher on the GPU of one rank: its memory, its kernels, its batches on streams.
#pragma once

#include <cstdint>
#include <memory>

#include "comm/call_order.hpp"
#include "comm/communicator.hpp"
#include "driver/kernel_module.hpp"
#include "driver/launch.hpp"
#include "messaging/kernels/matching_args.h"
#include "messaging/match_kernels.hpp"

namespace polypath {

/// Queues one after the other in the same arrays; all in memory of the GPU.
struct QueueBatch {
  std::uint32_t queues;
  const std::uint32_t* message_begins;  ///< queues + 1
  const std::uint32_t* receive_begins;
};

struct MatcherCounts {
  std::uint64_t batches = 0;
  std::uint64_t queues = 0;
  std::uint64_t messages = 0;  ///< without those of many queues, which the host does not count
  std::uint64_t receives = 0;
  std::uint64_t launches = 0;
};

/// Calls come from one thread at a time. Batches run one after another, on any streams, and
/// those of graphs where they were launched (CallOrder).
class Matching {
 public:
  /// `communicator` outlives it. `launch_per_phase`: batches by the whole GPU are a launch a phase,
  /// also where they could be one. Throws InvalidArgument, NotSupported, DriverError.
  Matching(Communicator& communicator, const MatchKernels& order, std::uint32_t capacity,
           bool launch_per_phase);
  /// Waits for its batches.
  ~Matching();
  Matching(const Matching&) = delete;
  Matching& operator=(const Matching&) = delete;

  [[nodiscard]] std::uint32_t capacity() const noexcept { return capacity_; }

  // Each throws DriverError. Counts are within the capacity; addresses are not looked at.
  void match(const device::match_batch& batch, device::match_outcome* outcome, CUstream stream);
  void match_many(const QueueBatch& queues, device::match_batch arrays,
                  device::match_outcome* outcomes, CUstream stream);
  void match_next(const device::match_batch& added, device::match_pair* pairs,
                  device::match_outcome* outcome, CUstream stream);
  void reset(CUstream stream);

  /// Waits for all batches.
  [[nodiscard]] MatchState state();
  [[nodiscard]] const MatcherCounts& counts() const noexcept { return counts_; }

 private:
  /// Runs `issue` after the batch before, in the GPU's context.
  template <typename Issue>
  void in_order(CUstream stream, Issue&& issue);
  /// For `issue`, as all that launches.
  template <typename... Parameters>
  void launch(CUfunction kernel, const LaunchShape& shape, CUstream stream,
              Parameters... parameters);
  /// All phases at once; `blocks` are no more than run at once.
  void launch_together(unsigned blocks, CUstream stream, MatchGridArgs& args);
  void issue_one(device::match_batch batch, bool uses_leftovers, device::match_outcome* outcome,
                 CUstream stream);

  const CudaDriver& driver_;
  CUcontext context_;
  const MatchKernels& order_;
  std::uint32_t capacity_;
  std::shared_ptr<const KernelModule> module_;
  std::shared_ptr<const KernelModule> carry_;
  CUfunction queues_ = nullptr;
  CUfunction many_ = nullptr;
  CUfunction grid_ = nullptr;
  CUfunction outcome_ = nullptr;
  CUfunction together_ = nullptr;
  CUfunction append_ = nullptr;
  CUfunction keep_ = nullptr;
  unsigned multiprocessors_ = 1;
  unsigned queues_at_once_ = 1;
  unsigned blocks_together_ = 0;  ///< that run at once; 0: a launch a phase
  CUdeviceptr memory_ = 0;
  MatchState* state_ = nullptr;  ///< these are in memory_
  MatchBuffers buffers_{};
  unsigned char* workspace_ = nullptr;
  std::uint64_t seed_;  ///< of its batches
  std::unique_ptr<CallOrder> order_of_calls_;
  bool knows_early_ = false;     ///< the GPU has kernels that begin early
  bool launches_early_ = false;  ///< of the batch that is issued
  MatcherCounts counts_;
};

}  // namespace polypath
