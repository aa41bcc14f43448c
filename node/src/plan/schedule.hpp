// A schedule: the steps of a plan in the order of issue, with what each must wait for. A plain
// value that any executor can run; addresses, streams and events are the executor's.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plan/plan.hpp"

namespace polypath {

inline constexpr int kNoStep = -1;
inline constexpr int kNoLink = -1;

enum class StepKind : std::uint8_t { copy };

/// A buffer of a transfer, without its address.
enum class BufferKind : std::uint8_t {
  source,
  destination,
  ring,  ///< staging memory of the step's route
};

/// Where a step reads or writes.
struct Place {
  BufferKind buffer = BufferKind::source;
  std::uint64_t offset = 0;

  friend bool operator==(const Place&, const Place&) = default;
};

/// What is done over one link.
struct Step {
  StepKind kind = StepKind::copy;
  int route = 0;       ///< index into TransferSchedule::routes
  int leg = 0;         ///< 0: leaves the source; on a staged route 1: reaches the destination
  int link = kNoLink;  ///< index into Node::links; kNoLink: wherever the driver sends it
  Place from;
  Place to;
  std::uint64_t bytes = 0;
  /// The steps, listed before, that must have completed, or kNoStep: first the one before it over
  /// the same leg, then one of the other leg. Leg 1 waits for its chunk's leg 0, leg 0 for the last
  /// reader of what it writes.
  std::array<int, 2> after{kNoStep, kNoStep};
  bool awaited = false;  ///< some later step of the other leg names it in `after`

  friend bool operator==(const Step&, const Step&) = default;
};

/// The steps of one transfer. It stands alone and holds no address: equal ones are one shape, for
/// any buffers.
struct TransferSchedule {
  Request request;
  std::vector<Route> routes;
  std::vector<Step> steps;
  std::uint64_t hash = 0;  ///< of all the above

  /// Whether anything is staged; otherwise it is one direct copy, that is, the native one.
  [[nodiscard]] bool split() const noexcept;

  friend bool operator==(const TransferSchedule&, const TransferSchedule&) = default;
};

/// The memory that a place of one of its steps is in.
MemoryId memory_of(const TransferSchedule& transfer, const Step& step, const Place& place) noexcept;

/// Fills in `hash`.
void set_hash(TransferSchedule& transfer) noexcept;

/// One step among those of all transfers.
struct StepIndex {
  int transfer = 0;
  int step = 0;
};

struct Schedule {
  /// As in the plan. Shared by all copies of the schedule.
  std::vector<std::shared_ptr<const TransferSchedule>> transfers;
  /// All steps in the order of issue, which keeps the order of each transfer's own.
  std::vector<StepIndex> order;
};

/// Direct copies first, one a transfer; then the chunks of all staged routes in turn, leg 0 of all
/// before leg 1 of any, so that no route starts late. A ring has as many slots as chunks, at most
/// what fits its memory and at most eight. Leg 0 waits once for half a ring of slots instead of
/// once for each: a wait for another GPU's event costs the CPU as much as a copy.
Schedule make_schedule(const Plan& plan, const RingLimits& limits);

/// A line a step, for people and tests.
std::string to_string(const Schedule& schedule);

}  // namespace polypath
