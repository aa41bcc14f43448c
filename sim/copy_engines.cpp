#include "copy_engines.hpp"

#include <algorithm>
#include <utility>

namespace polypath::sim {
namespace {

// A program's turn at an engine that another one waits for. Fitted to what was measured beside
// blocks of 64 MiB on 4 x H200 (docs/simulated-node.md): one large copy has half of the link's rate
// at any size above a block, and a run of chunks is interrupted after some 0.6 ms.
constexpr double kCopyTurnBytes = 64.0 * 1024 * 1024;
constexpr double kRunTurnBytes = 32.0 * 1024 * 1024;

bool uses(const Operation& copy, int resource) {
  return std::ranges::find(copy.flow->resources, resource) != copy.flow->resources.end();
}

}  // namespace

int CopyEngines::start(TrafficFlow traffic, std::span<const OperationPtr> running, double now_us) {
  if (traffic.engine >= 0 && !engines_.contains(traffic.engine)) {
    Engine& engine = engines_[traffic.engine];
    for (const OperationPtr& copy : running) {
      if (!uses(*copy, traffic.engine)) continue;
      ++engine.copies;
      const auto [entry, is_new] = copies_.try_emplace(copy->id);
      if (is_new) entry->second.left_bytes = entry->second.turn_bytes = copy->flow->bytes;
      entry->second.engines.push_back(traffic.engine);
      ++entry->second.held;
    }
  }
  Flow flow;
  flow.next_switch_us = std::max(traffic.begin_us, now_us);
  flow.traffic = std::move(traffic);
  flows_.push_back(std::move(flow));
  return static_cast<int>(flows_.size());
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
  entry.turn_bytes = entry.left_bytes;
  while (entry.held < entry.engines.size()) {
    Engine& engine = engines_.at(entry.engines[entry.held]);
    if (engine.has_block || !engine.queue.empty()) {
      const bool is_rest = entry.left_bytes < copy->flow->bytes;
      engine.queue.push_back({is_rest ? now_us : copy->issue_us, next_order_++, copy, 0});
      ++waiting_;
      return;
    }
    engine.blocks_since_us = kNever;
    ++engine.copies;
    ++entry.held;
  }
  begin(copy, now_us);
}

void CopyEngines::begin(const OperationPtr& copy, double now_us) {
  const Copy& entry = copies_.at(copy->id);
  // The idle engine would have begun it then.
  const double wait_us = now_us - entry.arrived_us;
  if (entry.left_bytes == copy->flow->bytes)
    delay_records(*copy, entry.blocks_since_us, copy->cold_us + wait_us);
  begin_copy_(copy, entry.turn_bytes);
}

bool CopyEngines::copy_ended(const OperationPtr& copy, double now_us) {
  const auto found = copies_.find(copy->id);
  if (found == copies_.end()) return true;  // began before there were engines
  Copy& entry = found->second;
  for (const int resource : entry.engines) {
    Engine& engine = engines_.at(resource);
    if (has_block_waiting(engine)) engine.turn_bytes += entry.turn_bytes;
    if (--engine.copies == 0) engine.free_us = now_us + hold_us_;
  }
  entry.left_bytes -= entry.turn_bytes;
  if (entry.left_bytes <= 0) {
    copies_.erase(found);
    return true;
  }
  entry.held = 0;
  for (const int resource : entry.engines) engines_.at(resource).free_us = now_us;
  pass(copy, now_us);
  return false;
}

void CopyEngines::block_ended(int id, double now_us) {
  Flow& ended = flow(id);
  ++ended.copied;
  --ended.queued;
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
    if (on.queued++ == 0) begin_block_(id, on.traffic.block);
    return;
  }
  Engine& engine = engines_.at(on.traffic.engine);
  if (engine.queue.empty()) engine.free_us = std::max(engine.free_us, now_us);
  for (; on.queued < on.traffic.queue_blocks; ++on.queued)
    engine.queue.push_back({now_us, next_order_++, nullptr, id});
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

bool CopyEngines::has_block_waiting(const Engine& engine) noexcept {
  return std::ranges::find(engine.queue, nullptr, &Entry::copy) != engine.queue.end();
}

double CopyEngines::pick_us(const Engine& engine) noexcept {
  if (engine.has_block || engine.copies > 0 || engine.queue.empty()) return kNever;
  return engine.free_us;
}

double CopyEngines::next_us() const noexcept {
  double next = kNever;
  for (const Flow& each : flows_) next = std::min(next, each.next_switch_us);
  for (const auto& [resource, engine] : engines_) next = std::min(next, pick_us(engine));
  return next;
}

void CopyEngines::run(double now_us) {
  for (std::size_t i = 0; i < flows_.size(); ++i)
    if (flows_[i].next_switch_us <= now_us) switch_flow(flows_[i], static_cast<int>(i) + 1, now_us);
  for (auto& [resource, engine] : engines_)
    if (pick_us(engine) <= now_us) pick(engine, now_us);
}

void CopyEngines::pick(Engine& engine, double now_us) {
  const auto earlier = [](const Entry& a, const Entry& b) {
    return std::pair(a.queued_us, a.order) < std::pair(b.queued_us, b.order);
  };
  std::ranges::sort(engine.queue, earlier);
  auto chosen = engine.queue.begin();
  const auto block = std::ranges::find(engine.queue, nullptr, &Entry::copy);
  if (engine.turn_bytes >= kRunTurnBytes && block != engine.queue.end()) chosen = block;
  const Entry entry = *chosen;
  engine.queue.erase(chosen);
  if (entry.copy == nullptr) {
    engine.has_block = true;
    engine.turn_bytes = 0;
    engine.blocks_since_us = std::min(engine.blocks_since_us, now_us);
    begin_block_(entry.flow, flow(entry.flow).traffic.block);
    return;
  }
  --waiting_;
  ++engine.copies;
  Copy& copy = copies_.at(entry.copy->id);
  copy.blocks_since_us =
      std::min(copy.blocks_since_us, std::exchange(engine.blocks_since_us, kNever));
  ++copy.held;
  if (copy.held < copy.engines.size()) {
    pass(entry.copy, now_us);
    return;
  }
  if (copy.engines.size() == 1 && !engine.queue.empty())
    copy.turn_bytes = std::min(copy.left_bytes, kCopyTurnBytes);
  begin(entry.copy, now_us);
}

}  // namespace polypath::sim
