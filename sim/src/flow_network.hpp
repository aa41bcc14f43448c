// Shares of a common capacity: flows over resources (links and ports), each flow at its max-min
// fair rate, recomputed whenever a flow starts or ends. Time is in microseconds and only moves
// forward. Pure arithmetic: nothing of CUDA, no clock of its own.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <vector>

namespace polypath::sim {

/// What flows share. A starting flow halts a link that it finds in use, as its copy engine serves
/// one copy after another. It halts a port only where the flows fill it: a port with room to spare
/// makes up for a halt (docs/cuda-notes.md).
struct Capacity {
  double gbps = 0;
  bool is_port = false;

  Capacity(double capacity_gbps, bool is_a_port = false)
      : gbps(capacity_gbps), is_port(is_a_port) {}
};

/// What a flow asks of the network.
struct FlowDemand {
  double bytes = 0;
  std::vector<int> resources;  ///< indices; a flow takes its rate from each of them
  double max_gbps = std::numeric_limits<double>::infinity();  ///< the flow's own limit
  bool hands_over = true;  ///< false: begins to move at once, and halts no link or port
};

class FlowNetwork {
 public:
  using Id = std::uint64_t;
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  /// `handover_us`: the time between the start of a flow with `hands_over` and its first bytes.
  /// Meanwhile each link that it finds in use, and each port that is filled then, stands still.
  FlowNetwork(const std::vector<Capacity>& capacities, double handover_us);

  /// Starts a flow at time `now_us`, which may not lie past next_us(). Ids must be unique.
  void start(Id id, FlowDemand demand, double now_us);

  /// Ends a flow before its time, at `now_us` (not past next_us()). Returns the bytes left.
  double stop(Id id, double now_us);

  /// When the next flow begins to move or ends, or the next halt is over; kNever when nothing is
  /// under way.
  [[nodiscard]] double next_us() const noexcept { return next_us_; }

  /// Moves time to `now_us` (not past next_us()). Returns the flows that ended, in the order of
  /// ids.
  std::vector<Id> advance(double now_us);

  /// The flow's present rate, GB/s; 0 for an unknown flow.
  [[nodiscard]] double rate_gbps(Id id) const noexcept;

 private:
  struct Resource {
    double gbps = 0;
    bool is_port = false;
    int flows = 0;
    double halted_until_us = 0;
  };
  struct Flow {
    FlowDemand demand;
    double begin_us = 0;
    double left_bytes = 0;
    double rate_gbps = 0;
    double end_us = kNever;
  };

  void progress(double now_us);
  void share();
  /// Gives each of the flows its max-min fair rate.
  void share_among(std::vector<Flow*> open) const;
  /// Whether all flows that cross the resource fill it, halted ones included.
  [[nodiscard]] bool is_filled(int index) const;
  [[nodiscard]] double halted_until_us(const Flow& flow) const noexcept;

  std::vector<Resource> resources_;
  double handover_us_;
  std::map<Id, Flow> flows_;  // ordered, so that equal cases always resolve the same way
  double now_us_ = 0;
  double next_us_ = kNever;
};

}  // namespace polypath::sim
