#include "timeline.hpp"

#include <algorithm>
#include <utility>

namespace polypath::sim {

namespace {

constexpr FlowNetwork::Id kOfCompanion = FlowNetwork::Id{1} << 63;

}  // namespace

Timeline::Timeline(const Costs& costs, std::vector<double> capacities_gbps)
    : costs_(costs), network_(std::move(capacities_gbps), costs.copy_handover_us) {}

OperationPtr Timeline::issue(Operation operation, double issue_us) {
  const auto issued = std::make_shared<Operation>(std::move(operation));
  issued->id = next_id_++;
  issued->issue_us = issue_us;
  wait_for_predecessors(issued);
  if (issued->pending == 0) make_ready(issued);
  return issued;
}

void Timeline::run_until(double us) {
  while (next_us() <= us) step();
  now_us_ = std::max(now_us_, us);
}

bool Timeline::step() {
  const double next = next_us();
  if (next == kNever) return false;
  now_us_ = next;
  if (network_.next_us() <= next) {
    for (const FlowNetwork::Id id : network_.advance(next)) {
      if ((id & kOfCompanion) != 0)
        companion_->flow_ended(id & ~kOfCompanion, next);
      else
        complete(flowing_.extract(id).mapped());
    }
  } else if (companion_ != nullptr && companion_->next_us() <= next) {
    companion_->run(next);
    poll(next);
  } else {
    const OperationPtr operation = starts_.extract(starts_.begin()).value().operation;
    start(operation);
  }
  return true;
}

void Timeline::start_flow(FlowNetwork::Id id, FlowDemand demand) {
  network_.start(id | kOfCompanion, std::move(demand), now_us_);
}

void Timeline::poll(double cpu_us) {
  for (auto next = waiting_.begin(); next != waiting_.end();) {
    const OperationPtr operation = *next;
    if (!operation->may_complete()) {
      ++next;
      continue;
    }
    next = waiting_.erase(next);
    starts_.insert({std::max(cpu_us, now_us_), operation});
  }
}

double Timeline::next_us() const noexcept {
  const double start = starts_.empty() ? kNever : starts_.begin()->us;
  const double companion = companion_ == nullptr ? kNever : companion_->next_us();
  return std::min({start, network_.next_us(), companion});
}

void Timeline::make_ready(const OperationPtr& operation) {
  double cold = operation->issue_us;
  double warm = 0;
  if (const OperationPtr previous = std::exchange(operation->previous, nullptr)) {
    cold = std::max(cold, previous->cold_us);
    warm = previous->warm_us;
  }
  for (const OperationPtr& predecessor : std::exchange(operation->after, {}))
    cold = std::max(cold, predecessor->end_us + costs_.event_us);
  operation->cold_us = cold;
  operation->warm_us = warm;

  double start_us = std::max(cold, warm);
  if (operation->flow) {
    // The network adds the hand-over, which is part of both costs.
    start_us = cold + std::max(costs_.copy_start_us - costs_.copy_handover_us, 0.0);
    if (warm > 0)
      start_us =
          std::max(start_us, warm + std::max(costs_.copy_gap_us - costs_.copy_handover_us, 0.0));
  }
  starts_.insert({std::max(start_us, now_us_), operation});
}

void Timeline::start(const OperationPtr& operation) {
  if (operation->flow) {
    flowing_.emplace(operation->id, operation);
    network_.start(operation->id, *operation->flow, now_us_);
  } else if (operation->may_complete && !operation->may_complete()) {
    waiting_.insert(operation);
  } else {
    complete(operation);
  }
}

void Timeline::complete(const OperationPtr& operation) {
  operation->end_us = now_us_;
  if (operation->flow) operation->warm_us = now_us_;
  // What the functions hold on to must not outlive the work.
  if (std::exchange(operation->may_complete, nullptr)) operation->cold_us = now_us_;
  const bool moved = operation->move != nullptr;
  if (const auto move = std::exchange(operation->move, nullptr)) {
    move();
    if (companion_ != nullptr) companion_->look(now_us_);
  }
  if (const auto effect = std::exchange(operation->effect, nullptr)) effect();
  operation->done = true;
  leave_queue(*operation);
  for (const OperationPtr& successor : std::exchange(operation->successors, {}))
    if (--successor->pending == 0) make_ready(successor);
  // What it wrote another stream may wait for, in virtual time.
  if (operation->flow || moved) poll(now_us_);
}

}  // namespace polypath::sim
