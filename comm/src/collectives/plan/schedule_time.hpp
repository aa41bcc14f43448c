// How long the steps of a schedule take on the capacity graph: a list schedule in virtual time.
// Each step starts when its queue and its dependencies let it, copies share links and ports fairly,
// and reductions run at the rate of the GPU's memory. A prediction: the simulated node says more
// (docs/ simulated-node.md), a GPU says what is true.
#pragma once

#include "collectives/plan/collective_schedule.hpp"

namespace polypath {

/// What else is on the links meanwhile: a kernel's stores.
struct Beside {
  std::vector<double> bytes;  ///< of each link, by index into Node::links; empty: nothing
  double start_us = 0;        ///< when the first are under way
};

struct ScheduleTime {
  double us = 0;                 ///< until the last step ends
  double beside_us = 0;          ///< until the last byte next to it has gone
  std::vector<double> stage_us;  ///< of each stage, from its first start to its last end
};

/// Counts Costs::copy_issue_us or launch_us for each step, call_us for each wait, and what
/// exchanges with other ranks take on the CPU of the step's rank, which issues in the order of the
/// list;
/// copy_start_us or copy_gap_us and kernel_start_us for the start; event_us for each change of
/// queues, for each value that a stream writes and between copies and kernels of a stream; and
/// flag_us more between ranks.
///
/// Next to other transfers, a copy halts each link and port of its way that is in use for
/// copy_handover_us; without, that is left out.
ScheduleTime schedule_time(const Node& node, const CollectiveSchedule& schedule,
                           const Beside& beside = {});

/// How often this process has called schedule_time(): what planning costs, for tests. Thread-safe.
[[nodiscard]] std::uint64_t schedule_time_runs() noexcept;

}  // namespace polypath
