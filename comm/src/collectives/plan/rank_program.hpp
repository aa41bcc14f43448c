// What one rank does of a schedule: its own steps, with the signals by which it tells other ranks
// that a step is done, and the signals that it waits for. A plain value; a pure function of the
// schedule, so that senders and receivers of signals agree without communication.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/plan/collective_schedule.hpp"

namespace polypath {

/// The number of completed steps of a stream.
struct StreamProgress {
  int rank = 0;    ///< whose stream it is; of a signal, its receiver
  int stream = 0;  ///< of that rank; of a signal, the sender's
  std::uint64_t steps = 0;

  friend bool operator==(const StreamProgress&, const StreamProgress&) = default;
};

struct RankStep {
  int index = 0;                        ///< of the step in the schedule
  int stream = 0;                       ///< of the rank's own: steps of one run in order
  std::vector<int> credits;             ///< ranks whose scratch must be free
  std::vector<StreamProgress> awaited;  ///< of other ranks
  /// Steps on other streams, by place here, that have waited aside for all of this and for no more
  /// than this stream needs, but for what their streams have waited for before: so it waits for
  /// theirs, not in graphs. Empty: it waits itself.
  std::vector<std::size_t> heard_by;
  std::vector<std::size_t> after;  ///< steps of this rank, on other streams, by place here
  bool is_awaited = false;         ///< by a step of this rank on another stream
  /// In a graph, whose branches may run in any order: steps of this rank on other streams that
  /// others are told of, by place here, and that come before it in the schedule. Where it waits for
  /// others, it waits for these first, lest it keeps the GPU from what another rank needs.
  std::vector<std::size_t> behind;
  std::vector<StreamProgress> signals;  ///< to other ranks, once it is done

  /// Whether it needs something of other ranks.
  [[nodiscard]] bool hears() const noexcept { return !credits.empty() || !awaited.empty(); }
  [[nodiscard]] bool waits() const noexcept { return hears() && heard_by.empty(); }

  friend bool operator==(const RankStep&, const RankStep&) = default;
};

struct RankProgram {
  int rank = 0;
  int streams = 0;
  std::vector<RankStep> steps;  ///< in the order of issue
};

/// The part of `rank`. What an earlier step of the same stream has waited for is not waited for
/// again.
RankProgram program_of(const CollectiveSchedule& schedule, int rank);

/// The most streams that a rank of the schedule has.
int streams_of(const CollectiveSchedule& schedule);

}  // namespace polypath
