#include "flow_network.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "base/units.hpp"

namespace polypath::sim {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

// Shares that differ by less than this are one bottleneck: rounding must not decide which flow is
// limited.
constexpr double kSameShare = 1 + 1e-9;

/// A port that flows use for more than this part of its capacity is filled.
constexpr double kFilled = 0.9;

}  // namespace

FlowNetwork::FlowNetwork(const std::vector<Capacity>& capacities, double handover_us)
    : handover_us_(handover_us) {
  for (const auto& [gbps, is_port] : capacities) resources_.push_back({gbps, is_port, 0, 0});
}

void FlowNetwork::start(Id id, FlowDemand demand, double now_us) {
  progress(now_us);
  std::set<int> in_use;
  for (const int index : demand.resources)
    if (demand.hands_over && resources_[at(index)].flows > 0) in_use.insert(index);
  for (const int index : demand.resources) ++resources_[at(index)].flows;
  Flow flow;
  flow.begin_us = now_us + (demand.hands_over ? handover_us_ : 0);
  flow.left_bytes = demand.bytes;
  flow.demand = std::move(demand);
  flows_.emplace(id, std::move(flow));
  for (const int index : in_use) {
    Resource& resource = resources_[at(index)];
    if (resource.is_port && !is_filled(index)) continue;
    resource.halted_until_us = std::max(resource.halted_until_us, now_us) + handover_us_;
  }
  share();
}

double FlowNetwork::stop(Id id, double now_us) {
  progress(now_us);
  const Flow stopped = std::move(flows_.extract(id).mapped());
  for (const int index : stopped.demand.resources) --resources_[at(index)].flows;
  share();
  return stopped.left_bytes;
}

std::vector<FlowNetwork::Id> FlowNetwork::advance(double now_us) {
  std::vector<Id> ended;
  for (const auto& [id, flow] : flows_)
    if (flow.end_us <= now_us) ended.push_back(id);
  progress(now_us);
  for (const Id id : ended) {
    for (const int index : flows_[id].demand.resources) --resources_[at(index)].flows;
    flows_.erase(id);
  }
  share();
  return ended;
}

double FlowNetwork::rate_gbps(Id id) const noexcept {
  const auto flow = flows_.find(id);
  return flow == flows_.end() ? 0 : flow->second.rate_gbps;
}

void FlowNetwork::progress(double now_us) {
  for (auto& [id, flow] : flows_)
    flow.left_bytes =
        std::max(0.0, flow.left_bytes - flow.rate_gbps * kBytesPerGbpsUs * (now_us - now_us_));
  now_us_ = now_us;
}

double FlowNetwork::halted_until_us(const Flow& flow) const noexcept {
  double until = flow.begin_us;
  for (const int index : flow.demand.resources)
    until = std::max(until, resources_[at(index)].halted_until_us);
  return until;
}

bool FlowNetwork::is_filled(int index) const {
  std::map<Id, Flow> flows = flows_;
  std::vector<Flow*> all;
  for (auto& [id, flow] : flows) all.push_back(&flow);
  share_among(all);
  double gbps = 0;
  for (const Flow* flow : all)
    gbps +=
        flow->rate_gbps * static_cast<double>(std::ranges::count(flow->demand.resources, index));
  return gbps >= kFilled * resources_[at(index)].gbps;
}

void FlowNetwork::share() {
  std::vector<Flow*> open;
  next_us_ = kNever;
  for (auto& [id, flow] : flows_) {
    flow.rate_gbps = 0;
    flow.end_us = kNever;
    if (const double until = halted_until_us(flow); until > now_us_) {
      next_us_ = std::min(next_us_, until);
      continue;
    }
    open.push_back(&flow);
  }
  share_among(open);
  for (Flow* flow : open) {
    flow->end_us = now_us_ + flow->left_bytes / (flow->rate_gbps * kBytesPerGbpsUs);
    next_us_ = std::min(next_us_, flow->end_us);
  }
}

// Progressive filling (Bertsekas and Gallager, Data Networks, section 6.5.2): raise all rates
// together; the flows of the resource that fills first keep their rate; repeat with the others.
void FlowNetwork::share_among(std::vector<Flow*> open) const {
  struct Left {
    double gbps;
    int flows;
  };
  std::vector<Left> left;
  for (const Resource& resource : resources_) left.push_back({resource.gbps, 0});
  for (const Flow* flow : open)
    for (const int index : flow->demand.resources) ++left[at(index)].flows;

  const auto limit = [&left](const Flow& flow) {
    double gbps = flow.demand.max_gbps;
    for (const int index : flow.demand.resources)
      gbps = std::min(gbps, left[at(index)].gbps / left[at(index)].flows);
    return gbps;
  };
  while (!open.empty()) {
    double lowest = kNever;
    for (const Flow* flow : open) lowest = std::min(lowest, limit(*flow));
    std::vector<Flow*> limited;
    std::vector<Flow*> others;
    for (Flow* flow : open)
      (limit(*flow) <= lowest * kSameShare ? limited : others).push_back(flow);
    for (Flow* flow : limited) {
      flow->rate_gbps = lowest;
      for (const int index : flow->demand.resources) {
        left[at(index)].gbps -= lowest;
        --left[at(index)].flows;
      }
    }
    open = std::move(others);
  }
}

}  // namespace polypath::sim
