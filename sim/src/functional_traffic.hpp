// Traffic of other programs in functional mode: real time, and seen by every process of a node.
//
// Blocks follow one another at the time that each takes alone, independent of this program. A copy
// over the same host link may run when the blocks have ended that were queued before its issue.
// Times are microseconds of std::chrono::steady_clock, which all processes share.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "copy_engines.hpp"

namespace polypath::sim {

class FunctionalTraffic {
 public:
  /// `machine`: processes of one user that name the same machine and node see each other's traffic;
  /// empty: none is seen, nor published.
  FunctionalTraffic(const std::string& machine, const std::string& node);

  /// Traffic that starts now; `from_file`: of the node file, which every process has, in the same
  /// phase in all of them.
  int start(const TrafficFlow& flow, bool from_file);
  void stop(int id);
  [[nodiscard]] std::uint64_t blocks(int id) const;
  [[nodiscard]] int queued(int id) const;

  /// Until when a copy over these resources that was issued at `issue_us` waits for blocks, and
  /// when the first of these began. Both are `issue_us` where it does not wait.
  struct Wait {
    double since_us = 0;
    double until_us = 0;
  };
  Wait wait(const FlowDemand& copy, double issue_us);

  [[nodiscard]] static double now_us();

 private:
  struct Flow {
    int engine = -1;
    int queue_blocks = 1;
    double block_us = 0;
    double on_us = 0;
    double off_us = 0;
    double start_us = 0;  ///< of the first period
    double begin_us = 0;
    double end_us = 0;
    std::shared_ptr<void> published;

    [[nodiscard]] double served_us(double issue_us) const;
  };

  void look_at_others(double now_us);
  [[nodiscard]] std::shared_ptr<void> publish(const Flow& flow) const;

  std::string prefix_;  ///< of the names of published flows; empty: none
  std::vector<Flow> own_;
  std::vector<Flow> others_;
  double looked_us_ = -1e9;
};

}  // namespace polypath::sim
