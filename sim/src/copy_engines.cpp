#include "copy_engines.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace polypath::sim {
namespace {

bool uses(const Operation& copy, int resource) {
  return std::ranges::find(copy.flow->resources, resource) != copy.flow->resources.end();
}

}  // namespace

int CopyEngines::start(TrafficFlow traffic, std::span<const OperationPtr> running, double now_us) {
  const int id = static_cast<int>(flows_.size()) + 1;
  if (traffic.engine >= 0) {
    const auto [entry, is_new] = engines_.try_emplace(traffic.engine);
    Engine& engine = entry->second;
    engine.flows.push_back(id);
    for (const OperationPtr& copy : running) {
      if (!is_new || !uses(*copy, traffic.engine)) continue;
      if (engine.running.empty()) begin_turn(engine, kOwn, now_us);
      engine.running.push_back(copy);
      Copy& known = copies_[copy->id];
      known.engines.push_back(traffic.engine);
      ++known.held;
    }
  }
  Flow flow;
  flow.next_switch_us = std::max(traffic.begin_us, now_us);
  flow.traffic = std::move(traffic);
  flows_.push_back(std::move(flow));
  return id;
}

void CopyEngines::stop(int id, double now_us) {
  if (id < 1 || static_cast<std::size_t>(id) > flows_.size()) return;
  flow(id).traffic.end_us = std::min(flow(id).traffic.end_us, now_us);
  flow(id).is_on = false;
  flow(id).next_switch_us = kNever;
}

std::uint64_t CopyEngines::blocks(int id) const noexcept {
  if (id < 1 || static_cast<std::size_t>(id) > flows_.size()) return 0;
  return flows_[static_cast<std::size_t>(id) - 1].copied;
}

int CopyEngines::queued(int id) const noexcept {
  if (id < 1 || static_cast<std::size_t>(id) > flows_.size()) return 0;
  return flows_[static_cast<std::size_t>(id) - 1].queued;
}

void CopyEngines::arrive(const OperationPtr& copy, double now_us) {
  Copy entry;
  entry.left_bytes = copy->flow->bytes;
  entry.arrived_us = now_us;
  for (const auto& [resource, engine] : engines_)
    if (uses(*copy, resource)) entry.engines.push_back(resource);
  copies_.emplace(copy->id, std::move(entry));
  pass(copy, now_us);
}

void CopyEngines::pass(const OperationPtr& copy, double now_us) {
  Copy& entry = copies_.at(copy->id);
  for (; entry.held < entry.engines.size(); ++entry.held) {
    Engine& engine = engines_.at(entry.engines[entry.held]);
    note_arrival(engine, now_us);
    const bool has_blocks =
        std::ranges::any_of(engine.flows, [&](int id) { return has_work(engine, id); });
    if (has_blocks || !engine.queue.empty()) {
      const bool is_rest = entry.left_bytes < copy->flow->bytes;
      engine.queue.push_back({is_rest ? now_us : copy->issue_us, next_order_++, copy});
      ++waiting_;
      return;
    }
    if (engine.turn != kOwn) begin_turn(engine, kOwn, now_us);
    engine.running.push_back(copy);
  }
  // The idle engine would have begun it when it arrived.
  if (entry.turn_us != kNever && entry.left_bytes == copy->flow->bytes)
    delay_records(*copy, entry.others_since_us, copy->cold_us + entry.turn_us - entry.arrived_us);
  service_.begin_copy(copy, entry.left_bytes);
}

void CopyEngines::copy_ended(const OperationPtr& copy, double now_us) {
  const auto it = copies_.find(copy->id);
  if (it == copies_.end()) return;  // began before there were engines
  for (const int resource : it->second.engines) {
    Engine& engine = engines_.at(resource);
    std::erase(engine.running, copy);
    if (engine.running.empty()) engine.free_us = now_us + hold_us_;
  }
  copies_.erase(it);
}

void CopyEngines::block_ended(int id, double now_us) {
  Flow& ended = flow(id);
  ++ended.copied;
  --ended.queued;
  ended.left_bytes = 0;
  if (ended.traffic.engine >= 0) {
    Engine& engine = engines_.at(ended.traffic.engine);
    engine.has_block = false;
    engine.free_us = now_us + hold_us_;
  }
  if (ended.is_on) queue_blocks(id, now_us);
}

void CopyEngines::queue_blocks(int id, double now_us) {
  Flow& on = flow(id);
  if (on.traffic.engine < 0) {
    if (on.queued++ == 0) service_.begin_block(id, on.traffic.block);
    return;
  }
  note_arrival(engines_.at(on.traffic.engine), now_us);
  on.queued = std::max(on.queued, on.traffic.queue_blocks);
}

void CopyEngines::switch_flow(Flow& flow, int id, double now_us) {
  const TrafficFlow& traffic = flow.traffic;
  flow.is_on = now_us < traffic.end_us && !flow.is_on;
  if (now_us >= traffic.end_us)
    flow.next_switch_us = kNever;
  else if (traffic.off_us <= 0)
    flow.next_switch_us = traffic.end_us;
  else
    flow.next_switch_us =
        std::min(now_us + (flow.is_on ? traffic.on_us : traffic.off_us), traffic.end_us);
  if (flow.is_on) queue_blocks(id, now_us);
}

bool CopyEngines::has_work(const Engine& engine, int turn) const noexcept {
  if (turn == kNobody) return false;
  return turn == kOwn ? !engine.queue.empty() || !engine.running.empty() : flow(turn).queued > 0;
}

int CopyEngines::next_turn(const Engine& engine) const noexcept {
  int first = kNobody;  // of all
  int next = kNobody;   // of those after the present one
  const auto consider = [&](int turn) {
    if (!has_work(engine, turn)) return;
    if (first == kNobody) first = turn;
    if (next == kNobody && turn > engine.turn) next = turn;
  };
  consider(kOwn);
  for (const int id : engine.flows) consider(id);  // ascending
  return next == kNobody ? first : next;
}

bool CopyEngines::is_contended(const Engine& engine) const noexcept {
  const int next = next_turn(engine);
  return next != kNobody && next != engine.turn;
}

double CopyEngines::next_of_engine_us(const Engine& engine) const noexcept {
  if (!engine.has_block && engine.running.empty())
    return next_turn(engine) == kNobody ? kNever : engine.free_us;
  // A copy that holds, or waits for, another engine as well keeps this one.
  const auto keeps = [this](const OperationPtr& copy) {
    const auto it = copies_.find(copy->id);
    return it != copies_.end() && it->second.engines.size() > 1;
  };
  if (!is_contended(engine) || std::ranges::any_of(engine.running, keeps)) return kNever;
  return engine.turn_end_us;
}

double CopyEngines::next_us() const noexcept {
  double next = kNever;
  for (const Flow& each : flows_) next = std::min(next, each.next_switch_us);
  for (const auto& [resource, engine] : engines_) next = std::min(next, next_of_engine_us(engine));
  return next;
}

void CopyEngines::run(double now_us) {
  for (std::size_t i = 0; i < flows_.size(); ++i)
    if (flows_[i].next_switch_us <= now_us) switch_flow(flows_[i], static_cast<int>(i) + 1, now_us);
  for (auto& [resource, engine] : engines_) {
    if (next_of_engine_us(engine) > now_us) continue;
    if (engine.has_block || !engine.running.empty()) interrupt(engine, now_us);
    pick(engine, now_us);
  }
}

void CopyEngines::note_arrival(Engine& engine, double now_us) const noexcept {
  if (next_turn(engine) == kNobody && now_us > engine.free_us) {
    engine.turn = kNobody;  // it was idle
    engine.others_since_us = kNever;
    engine.free_us = now_us;
  }
  if (engine.turn == kNobody || is_contended(engine) || now_us < engine.turn_end_us) return;
  // No other program has waited, so one turn has followed the other.
  const double turns = std::floor((now_us - engine.turn_end_us) / kTurnUs) + 1;
  engine.turn_end_us += turns * kTurnUs;
  if (engine.turn != kOwn) engine.others_since_us = engine.turn_end_us - kTurnUs;
}

void CopyEngines::begin_turn(Engine& engine, int turn, double now_us) {
  if (turn == kOwn) {
    for (const Entry& entry : engine.queue) {
      Copy& copy = copies_.at(entry.copy->id);
      if (copy.turn_us != kNever) continue;
      copy.turn_us = now_us;
      copy.others_since_us = engine.others_since_us;
    }
    engine.others_since_us = kNever;
  } else if (engine.others_since_us == kNever || !has_work(engine, kOwn)) {
    engine.others_since_us = now_us;
  }
  engine.turn = turn;
  engine.turn_end_us = now_us + kTurnUs;
}

void CopyEngines::interrupt(Engine& engine, double now_us) {
  engine.free_us = now_us;
  if (std::exchange(engine.has_block, false)) {
    flow(engine.turn).left_bytes = std::max(service_.interrupt_block(engine.turn), 1.0);
    return;
  }
  for (const OperationPtr& copy : std::exchange(engine.running, {})) {
    Copy& entry = copies_.at(copy->id);
    entry.left_bytes = service_.interrupt_copy(copy);
    entry.held = 0;
    pass(copy, now_us);  // others wait, so it does as well
  }
}

void CopyEngines::pick(Engine& engine, double now_us) {
  const int next = next_turn(engine);
  if (!has_work(engine, engine.turn) || (next != engine.turn && now_us >= engine.turn_end_us))
    begin_turn(engine, next, now_us);
  if (engine.turn != kOwn) {
    Flow& served = flow(engine.turn);
    FlowDemand block = served.traffic.block;
    if (served.left_bytes > 0) block.bytes = served.left_bytes;
    engine.has_block = true;
    service_.begin_block(engine.turn, block);
    return;
  }
  const auto first = std::ranges::min_element(
      engine.queue, {}, [](const Entry& entry) { return std::pair(entry.queued_us, entry.order); });
  const OperationPtr copy = first->copy;
  engine.queue.erase(first);
  --waiting_;
  engine.running.push_back(copy);
  ++copies_.at(copy->id).held;
  pass(copy, now_us);
}

}  // namespace polypath::sim
