// The GPUs' primary contexts, and peer access between them. A context is made only when asked for:
// it takes 0.2 s and some hundred megabytes of the GPU.
//
// A thread that issues a transfer must never wait for a context that is being created: context()
// and enable_peer_access() may take long, and block no thread in the other functions.
//
// The program may reset a primary context (cuDevicePrimaryCtxReset). What was made in it is gone
// then, although the GPU soon has another one, perhaps with the same handle. lost() is true from
// the moment that it is noticed; nothing of this process's engine is used from then on.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "driver/cuda_driver.hpp"
#include "exec/pinned_budget.hpp"
#include "exec/staging_policy.hpp"
#include "plan/plan.hpp"

namespace polypath {

/// Thread-safe. Everything retained is released by the destructor.
class Devices {
 public:
  /// `node` must outlive it. Without NVML less is known of GPUs that have no context yet.
  /// `pinned_limit`: bytes of host memory that may be page-locked.
  Devices(std::shared_ptr<const CudaDriver> driver, std::shared_ptr<const Nvml> nvml,
          const Node& node, std::uint64_t pinned_limit = PinnedBudget::kDefaultLimit);
  ~Devices();
  Devices(const Devices&) = delete;
  Devices& operator=(const Devices&) = delete;

  [[nodiscard]] const std::shared_ptr<const CudaDriver>& driver() const noexcept { return driver_; }
  [[nodiscard]] int count() const noexcept { return static_cast<int>(gpus_.size()); }

  /// The primary context of `gpu`, made if need be (slow then) and allowed. Throws StagingRefused,
  /// and DriverError, also once it was reset.
  CUcontext context(int gpu);
  /// As context(), for a GPU that the program itself asks for, which needs no permission.
  CUcontext context_for_program(int gpu);
  /// Whether a context on `gpu`, if it has none, and `bytes` of staging memory may be taken. Slow;
  /// throws DriverError.
  StagingReason may_stage(int gpu, std::uint64_t bytes);
  /// Throws StagingRefused where it may not.
  void require_staging(int gpu, std::uint64_t bytes);
  /// The primary context of `gpu` if it exists already; null otherwise, while it is being created
  /// here, and once it is known that it was reset. Fast.
  CUcontext context_if_active(int gpu);
  /// The GPU whose primary context this is, or -1 for any other context. Fast.
  int gpu_of(CUcontext context);

  /// What all that page-locks host memory takes from.
  [[nodiscard]] PinnedBudget& pinned() noexcept { return pinned_; }

  /// Lets work of `from`'s context reach the memory of `to`. Once a pair, slow then; throws when it
  /// cannot.
  void enable_peer_access(int from, int to);

  /// Whether what was made in the primary context of `gpu` still exists. True for a GPU whose
  /// context was not requested here. One call to the driver.
  bool alive(int gpu) noexcept;
  /// As above, for all GPUs that the plan sends from, to or by: one call each.
  bool alive(const Plan& plan);
  /// Asks that of all GPUs; true when one was reset.
  bool any_reset() noexcept;
  /// Every call in the context of `gpu` fails with `result` from now on (a sticky error): no route
  /// uses it any more. Warns once.
  void mark_failed(int gpu, CUresult result) noexcept;
  [[nodiscard]] bool has_failed(int gpu) noexcept { return state_of(gpu).failed; }
  /// Whether alive() was ever false. No call to the driver.
  [[nodiscard]] bool lost() const noexcept { return lost_; }

 private:
  struct State {
    std::mutex mutex;  // held while a context is retained, which takes long if it is made
    std::atomic<bool> making{false};
    std::atomic<CUcontext> context{nullptr};  // set once
    unsigned long long id = 0;                // of the context, where the driver numbers them
    std::atomic<bool> reset{false};
    std::atomic<bool> failed{false};
  };
  State& state_of(int gpu) { return *gpus_[static_cast<std::size_t>(gpu)]; }
  bool active(int gpu) const;
  CUcontext make(int gpu, bool staging);
  CUcontext retain(int gpu);  // with its mutex held

  std::shared_ptr<const CudaDriver> driver_;
  std::shared_ptr<const Nvml> nvml_;
  const Node& node_;
  PinnedBudget pinned_;
  std::vector<std::unique_ptr<State>> gpus_;
  std::atomic<bool> lost_{false};
  std::mutex enabling_;  // held while peer access is given
  std::set<std::pair<int, int>> peers_;
};

}  // namespace polypath
