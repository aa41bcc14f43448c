// One piece of device work: a node of the DAG that the devices run.
#pragma once

#include <algorithm>
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
  // What it does, set by its issuer.
  std::optional<FlowDemand> flow;      ///< moves bytes; without it, it takes no time
  std::function<bool()> may_complete;  ///< waits until this holds; empty: no such wait
  std::function<void()> move;          ///< moves the bytes at its completion; needs no lock
  std::function<void()> effect;        ///< what else its completion brings, under the driver's lock

  double takes_us = 0;        ///< of its stream's time, without bytes: a value that is written
  int kernel_on = -1;         ///< the GPU, of a kernel
  bool is_delayable = false;  ///< the record of an event: see delay_records()

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
  double kernel_end_us = -1;  ///< on its stream, of the last kernel, with no copy since; else -1
  double end_us = 0;
  bool done = false;
  double timestamp_us = 0;          ///< of a record: what cuEventElapsedTime takes; end_us or later
  std::weak_ptr<Operation> record;  ///< directly before it on its stream, if that is delayable
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

/// Takes what is before an operation on its stream, when all of it has completed; null: nothing.
inline OperationPtr take_previous(Operation& operation) {
  OperationPtr previous = std::exchange(operation.previous, nullptr);
  if (previous && previous->is_delayable) operation.record = previous;
  return previous;
}

/// A copy has waited for its engine, which others have used since `since_us`. Records directly
/// before it that were made in that time get the timestamp `begin_us`: GPUs execute them on the
/// channel of the copy, when that gets its turn, just before the copy. So events around a copy do
/// not show its wait for the engine (docs/cuda-notes.md). Only the timestamp is late here; GPUs
/// complete the event late as well.
inline void delay_records(const Operation& copy, double since_us, double begin_us) {
  for (OperationPtr record = copy.record.lock(); record && record->end_us >= since_us;
       record = record->record.lock())
    record->timestamp_us = std::max(record->timestamp_us, begin_us);
}

/// Makes room on its stream; to be called at its completion.
inline void leave_queue(Operation& operation) {
  if (const std::shared_ptr<int> queue = std::exchange(operation.queue, nullptr)) --*queue;
}

}  // namespace polypath::sim
