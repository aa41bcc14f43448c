// One piece of device work: a node of the DAG that the devices run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "flow_network.hpp"

namespace polypath::sim {

struct Operation;
using OperationPtr = std::shared_ptr<Operation>;

struct Operation {
  // What it is, given by whoever issues it.
  std::optional<FlowDemand> flow;      ///< moves bytes; without it, it takes no time
  std::function<bool()> may_complete;  ///< waits until this holds; empty: no such wait
  std::function<void()> move;          ///< moves the bytes at its completion; needs no lock
  std::function<void()> effect;        ///< what else its completion brings, under the driver's lock

  int kernel_on = -1;  ///< the GPU, of a kernel

  std::shared_ptr<int> queue;  ///< unfinished operations of its stream, itself among them; or null

  // When it may start, given at its issue.
  OperationPtr previous;            ///< the operation before it on its stream
  std::vector<OperationPtr> after;  ///< operations of other streams that it waits for

  // What the devices keep.
  std::uint64_t id = 0;  ///< order of issue
  double issue_us = 0;
  int pending = 0;  ///< predecessors that have not completed
  std::vector<OperationPtr> successors;
  double cold_us = 0;  ///< on its stream, what follows starts from idle, not before this time
  double warm_us = 0;  ///< on its stream, a copy ended at this time; 0: none
  double end_us = 0;
  bool done = false;
};

/// Counts what the operation has to wait for, and is told by each when it has completed.
inline void wait_for_predecessors(const OperationPtr& issued) {
  const auto depend_on = [&issued](const OperationPtr& predecessor) {
    if (predecessor->done) return;
    predecessor->successors.push_back(issued);
    ++issued->pending;
  };
  if (issued->previous) depend_on(issued->previous);
  for (const OperationPtr& predecessor : issued->after) depend_on(predecessor);
}

/// Makes room on its stream; to be called at its completion.
inline void leave_queue(Operation& operation) {
  if (const std::shared_ptr<int> queue = std::exchange(operation.queue, nullptr)) --*queue;
}

}  // namespace polypath::sim
