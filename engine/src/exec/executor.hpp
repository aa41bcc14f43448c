// An executor runs a schedule. Its life, for one run:
//
//   lease   what the staged routes run on, or the run is busy and nothing has happened
//   fork    an event on each caller's stream, before anything
//   issue   the steps
//   end     the leases end: others may take what they held
//   join    each caller's stream waits for all of its transfer: for each route, or, where it is
//           held back with others, for one that has waited for the rest
//
// What goes to a caller's own stream may wait where that stream is full, as a native copy would;
// no thread waits for a lease meanwhile. What is issued to others' streams finds room. No lock is
// held over any of it.
//
// A new executor implements run() and passes the behaviour suite (tests/behaviour).
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "driver/context_guard.hpp"
#include "exec/route_resources.hpp"
#include "exec/sequence.hpp"
#include "exec/transfer_sample.hpp"
#include "plan/transfer_schedule.hpp"

namespace polypath {

/// Where the source and the destination of a transfer are for the GPUs that issue a route's first
/// and last leg: elsewhere than for the caller when another process has the memory.
struct RouteEnds {
  CUdeviceptr dst = 0;
  CUdeviceptr src = 0;
};

/// One transfer with its addresses.
struct BoundTransfer {
  CUdeviceptr dst = 0;
  CUdeviceptr src = 0;
  CallerStream caller;
  int caller_gpu = 0;                 ///< whose primary context the caller's stream belongs to
  unsigned long long dst_buffer = 0;  ///< the driver's number of the allocation; 0: unknown
  unsigned long long src_buffer = 0;
  std::vector<RouteEnds> ends;  ///< by route; of direct routes unused
  /// Nothing but event records was put on the caller's stream since the last transfer that a run
  /// carried there (sequence.hpp).
  bool follows = false;
  std::shared_ptr<TransferSample> sample;  ///< to be timed; null: not
};

/// How a run ended.
struct RunResult {
  bool issued = false;  ///< a copy was issued
  /// Every caller's stream waits for all that was issued, so that native copies of all transfers
  /// may follow: they write the same bytes.
  bool is_ordered = true;
  const Route* busy = nullptr;  ///< of the schedule: could not be leased, and nothing was issued
  /// With `busy`: the caller's stream is held back, and has filled that route with many transfers.
  bool is_filled = false;
  const Route* narrow = nullptr;  ///< of the schedule: a second ring would let transfers overlap
  int followed = 0;               ///< transfers that share the fork of an earlier one
  std::exception_ptr error = {};  ///< what failed, or null

  [[nodiscard]] bool done() const noexcept { return busy == nullptr && error == nullptr; }
};

class Executor {
 public:
  virtual ~Executor() = default;
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;

  /// Issues the steps of `schedule`, whose transfers are `transfers`, each on a stream of its own.
  /// Throws nothing. Any thread.
  virtual RunResult run(const GroupSchedule& schedule,
                        const std::vector<BoundTransfer>& transfers) noexcept = 0;
};

/// What every run does: lease and fork. All functions but the destructor throw.
class LeasedRun {
 public:
  LeasedRun(const CudaDriver& driver, RouteResources& resources, const GroupSchedule& schedule,
            const std::vector<BoundTransfer>& transfers);

  /// Everything for every staged route, or the one that has to be left out. Without `channels` the
  /// rings alone.
  const Route* lease(bool channels);
  /// One event on the stream of each transfer that is split, before anything.
  void fork();

  [[nodiscard]] bool issued() const noexcept { return issued_; }
  /// After lease() found a route busy: RunResult::is_filled.
  [[nodiscard]] bool is_filled() const noexcept { return is_filled_; }
  [[nodiscard]] const Route* narrow() const noexcept { return narrow_; }
  /// Transfers that share the fork of an earlier one.
  [[nodiscard]] int followed() const noexcept;

 protected:
  /// What one transfer's routes need, for its ticket.
  const Route* lease_transfer(std::size_t transfer, bool channels);
  /// The transfers follow each other where the next ones say so; all is issued.
  void remember_sequences();
  void end_sequences() noexcept;
  /// After a failure.
  void mark_failed_gpus() noexcept;
  [[nodiscard]] const TransferSchedule& schedule_of(std::size_t transfer) const {
    return *schedule_.transfers[transfer];
  }
  /// Where a place of a step of the transfer is.
  [[nodiscard]] CUdeviceptr address(std::size_t transfer, const Step& step,
                                    const Place& place) const;

  const CudaDriver& driver_;
  RouteResources& resources_;
  const GroupSchedule& schedule_;
  const std::vector<BoundTransfer>& transfers_;
  ContextGuard guard_;
  std::vector<std::shared_ptr<TransferState>>
      tickets_;                                  // by transfer; null where nothing is staged
  std::vector<std::vector<RouteLease>> leases_;  // by transfer and route; empty of direct routes
  std::vector<std::vector<RouteAccess>> uses_;   // by transfer and route
  /// By transfer: the route whose second leg's channel waits for the ends of all others, so that
  /// the caller's stream, which is held back, waits once; nothing: it waits for each.
  std::vector<std::optional<std::size_t>> gathers_;
  const Route* narrow_ = nullptr;
  bool is_filled_ = false;
  bool issued_ = false;
};

}  // namespace polypath
