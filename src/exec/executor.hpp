// An executor runs a schedule. Its life, for one run:
//
//   1. The core plans, leases what the routes need, and holds RouteResources::lock() throughout.
//   2. run() issues everything and returns; it never waits for the GPU.
//   3. On return each caller's stream waits for all of its transfer; the leases carry the tickets on.
//
// A new executor implements run() and passes the behaviour suite (tests/behaviour).
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "exec/route_resources.hpp"
#include "plan/schedule.hpp"

namespace polypath {

/// One transfer with all that it runs on.
struct BoundTransfer {
  CUdeviceptr dst = 0;
  CUdeviceptr src = 0;
  std::shared_ptr<Ticket> ticket;  ///< null when the transfer has no staged route
  CallerStream caller;
  int caller_gpu = 0;                 ///< whose primary context the caller's stream belongs to
  unsigned long long dst_buffer = 0;  ///< the driver's number of the allocation; 0: unknown
  unsigned long long src_buffer = 0;
  std::vector<RouteLease> leases;  ///< by route; empty leases for direct routes
};

/// How far a run came when a driver call failed.
enum class RunOutcome : std::uint8_t { done, failed_before_first_copy };

class Executor {
 public:
  virtual ~Executor() = default;
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;

  /// Issues the copies of `schedule`. A driver call that fails before the first copy was issued:
  /// nothing happened, failed_before_first_copy. One that fails later: throws DriverError, after every
  /// caller's stream was made to wait for all that was issued.
  virtual RunOutcome run(const Schedule& schedule, std::vector<BoundTransfer>& transfers) = 0;
};

}  // namespace polypath
