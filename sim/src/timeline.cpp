#include "timeline.hpp"

#include <algorithm>
#include <utility>

namespace polypath::sim {

namespace {

constexpr FlowNetwork::Id kOfCompanion = FlowNetwork::Id{1} << 63;
constexpr FlowNetwork::Id kOfTraffic = FlowNetwork::Id{1} << 62;

/// Between the end of a copy and the start of the next one of its stream; the network adds the
/// hand-over, which is part of the gap.
double gap_us(const Costs& costs) {
  return std::max(costs.copy_gap_us - costs.copy_handover_us, 0.0);
}

}  // namespace

Timeline::Timeline(const Costs& costs, const std::vector<Capacity>& capacities)
    : costs_(costs), network_(capacities, costs.copy_handover_us), engines_(gap_us(costs), *this) {}

int Timeline::start_traffic(TrafficFlow flow) {
  has_traffic_ = true;
  std::vector<OperationPtr> running;
  for (const auto& [id, copy] : flowing_) running.push_back(copy);
  return engines_.start(std::move(flow), running, now_us_);
}

OperationPtr Timeline::issue(Operation operation, double issue_us) {
  const auto issued = std::make_shared<Operation>(std::move(operation));
  issued->id = next_id_++;
  issued->issue_us = issue_us;
  wait_for_predecessors(issued);
  if (issued->pending == 0) make_ready(issued);
  return issued;
}

void Timeline::run_until(double us) {
  for (double next = next_of_all_us(); next <= us; next = next_of_all_us()) step_to(next);
  now_us_ = std::max(now_us_, us);
}

bool Timeline::step() {
  if (next_us() == kNever) return false;
  step_to(next_of_all_us());
  return true;
}

void Timeline::step_to(double next) {
  next = std::max(next, now_us_);
  now_us_ = next;
  if (network_.next_us() <= next) {
    for (const FlowNetwork::Id id : network_.advance(next)) flow_ended(id);
  } else if (companion_ != nullptr && companion_->next_us() <= next) {
    companion_->run(next);
    poll(next);
  } else if (!starts_.empty() && starts_.begin()->us <= next) {
    const OperationPtr operation = starts_.extract(starts_.begin()).value().operation;
    start(operation);
  } else {
    engines_.run(next);
  }
}

void Timeline::flow_ended(FlowNetwork::Id id) {
  if ((id & kOfCompanion) != 0) {
    --companion_flows_;
    companion_->flow_ended(id & ~kOfCompanion, now_us_);
  } else if ((id & kOfTraffic) != 0) {
    engines_.block_ended(blocks_.extract(id).mapped(), now_us_);
  } else {
    const OperationPtr copy = flowing_.extract(id).mapped();
    if (has_traffic_) engines_.copy_ended(copy, now_us_);
    complete(copy);
  }
}

void Timeline::begin_copy(const OperationPtr& copy, double bytes) {
  flowing_.emplace(copy->id, copy);
  FlowDemand demand = *copy->flow;
  demand.bytes = bytes;
  network_.start(copy->id, std::move(demand), now_us_);
}

void Timeline::begin_block(int flow, const FlowDemand& block) {
  const FlowNetwork::Id id = next_block_++ | kOfTraffic;
  blocks_.emplace(id, flow);
  network_.start(id, block, now_us_);
}

double Timeline::interrupt_copy(const OperationPtr& copy) {
  flowing_.erase(copy->id);
  return network_.stop(copy->id, now_us_);
}

double Timeline::interrupt_block(int flow) {
  const auto block =
      std::ranges::find(blocks_, flow, [](const auto& entry) { return entry.second; });
  const FlowNetwork::Id id = block->first;
  blocks_.erase(block);
  return network_.stop(id, now_us_);
}

void Timeline::start_flow(FlowNetwork::Id id, FlowDemand demand) {
  ++companion_flows_;
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
  const bool has_own = !has_traffic_ || !starts_.empty() || !flowing_.empty() ||
                       engines_.has_waiting() || companion_flows_ > 0 ||
                       (companion_ != nullptr && companion_->next_us() < kNever);
  return has_own ? next_of_all_us() : kNever;
}

double Timeline::next_of_all_us() const noexcept {
  const double start = starts_.empty() ? kNever : starts_.begin()->us;
  const double companion = companion_ == nullptr ? kNever : companion_->next_us();
  const double traffic = has_traffic_ ? engines_.next_us() : kNever;
  return std::min({start, network_.next_us(), companion, traffic});
}

void Timeline::make_ready(const OperationPtr& operation) {
  double cold = operation->issue_us;
  double warm = 0;
  const bool is_kernel = operation->kernel_on >= 0;
  if (const OperationPtr previous = take_previous(*operation)) {
    cold = std::max(cold, previous->cold_us);
    warm = previous->warm_us;
    operation->kernel_end_us = previous->kernel_end_us;
    const bool is_after_kernel = previous->kernel_end_us >= 0;
    // Copy engines and multiprocessors tell each other as events do.
    if (is_kernel && !is_after_kernel && warm > 0) cold = std::max(cold, warm + costs_.event_us);
    if (operation->flow && is_after_kernel)
      cold = std::max(cold, previous->kernel_end_us + costs_.event_us);
  }
  for (const OperationPtr& predecessor : std::exchange(operation->after, {}))
    cold = std::max(cold, predecessor->end_us + costs_.event_us);
  operation->cold_us = cold;
  operation->warm_us = warm;

  double start_us = std::max(cold, warm) + operation->takes_us;
  if (operation->flow) {
    // The network adds the hand-over, which is part of both costs.
    start_us = cold + std::max(costs_.copy_start_us - costs_.copy_handover_us, 0.0);
    if (warm > 0) start_us = std::max(start_us, warm + gap_us(costs_));
  }
  starts_.insert({std::max(start_us, now_us_), operation});
}

void Timeline::start(const OperationPtr& operation) {
  if (operation->flow) {
    if (has_traffic_)
      engines_.arrive(operation, now_us_);
    else
      begin_copy(operation, operation->flow->bytes);
  } else if (operation->may_complete && !operation->may_complete()) {
    waiting_.insert(operation);
  } else {
    complete(operation);
  }
}

void Timeline::complete(const OperationPtr& operation) {
  operation->end_us = operation->timestamp_us = now_us_;
  if (operation->flow || (operation->takes_us > 0 && operation->warm_us > 0))
    operation->warm_us = now_us_;
  else if (operation->takes_us > 0)
    operation->cold_us = now_us_;
  if (operation->flow) operation->kernel_end_us = -1;
  if (operation->kernel_on >= 0) operation->kernel_end_us = now_us_;
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
