// The schedule of a collective that runs by copies and small reduction kernels. Each rank runs the
// steps of its own (`rank`), and waits for those of others by signals.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/plan/request.hpp"
#include "plan/schedule.hpp"

namespace polypath {

/// A step touches the buffers and the scratch of its own rank, and writes to the scratch of others.
/// Before a rank's first step its input is ready and its output may be written; before the first
/// that writes to another rank's scratch, that rank is done with it as well. Slots of scratch are
/// used in turn: what overwrites one names the readers in `after`.
struct CollectiveSchedule : Schedule {
  CollectiveRequest request;
  std::vector<std::string> stages;
  /// Whether a queue's next step waits for other ranks while the one before it still runs: where
  /// small copies must keep links busy. It costs an event a step.
  bool waits_aside = false;
  std::uint64_t scratch_bytes = 0;  ///< of each rank
  std::uint64_t host_bytes = 0;     ///< of each host memory
};

/// Elements that it writes.
std::uint64_t elements_of(const CollectiveSchedule& schedule, const Step& step);
/// Bytes of its elements in a place that it reads or writes.
std::uint64_t bytes_of(const CollectiveSchedule& schedule, const Step& step, const Place& place);

}  // namespace polypath
