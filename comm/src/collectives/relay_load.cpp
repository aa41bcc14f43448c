#include "collectives/relay_load.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/units.hpp"
#include "core/load_monitor.hpp"

namespace polypath {

RelayLoad::RelayLoad(LoadMonitor* load, const Communicator& communicator, std::vector<int> gpus,
                     std::uintptr_t key)
    : load_(load), comm_(communicator), gpus_(std::move(gpus)), key_(key) {}

bool RelayLoad::is_known() const noexcept { return load_ != nullptr && load_->is_on(); }

std::uint64_t RelayLoad::now_ns() const { return is_known() ? load_->now_ns() : 0; }

std::vector<bool> RelayLoad::loaded(const Times& times, CUstream stream) {
  std::vector<bool> all(gpus_.size(), false);
  if (!is_known()) return all;
  LoadLook look = load_->look(LoadMonitor::stream_key(stream, comm_.gpu()));
  look.streams.push_back(key_);
  const Tolerance waits =
      tolerance(times.predicted_us, times.without_us, static_cast<int>(gpus_.size()));
  const Node& node = comm_.node();
  // All links are asked for: a loaded one is probed again only then.
  for (std::size_t relay = 0; relay < gpus_.size(); ++relay)
    for (int rank = 0; rank < comm_.size(); ++rank) {
      if (rank == comm_.rank()) continue;
      const MemoryId between = MemoryId::gpu(gpus_[relay]);
      const auto in = node.find_link(MemoryId::gpu(comm_.gpu()), between);
      const auto out = node.find_link(between, MemoryId::gpu(comm_.gpu_of(rank)));
      if (!in || !out) continue;
      const Route route{RouteKind::via_gpu, between, {*in, *out}};
      const bool is_now = load_->is_loaded(route, waits, look);
      if (is_now || load_->is_occupied_by_others(route, waits, look)) all[relay] = true;
    }
  return all;
}

bool RelayLoad::is_any_loaded(const Times& times, CUstream stream) {
  const std::vector<bool> all = loaded(times, stream);
  return std::ranges::find(all, true) != all.end();
}

MonitoredTraffic RelayLoad::on_links(const Traffic& traffic) const {
  const Node& node = comm_.node();
  const MemoryId own = MemoryId::gpu(comm_.gpu());
  MonitoredTraffic noted;
  noted.from = own;
  noted.staged = MemoryId::gpu(gpus_.front());
  noted.direct_bytes = traffic.direct_bytes;
  noted.predicted_us = traffic.times.predicted_us;
  noted.without_us = traffic.times.without_us;
  const auto add = [&](MemoryId from, MemoryId to, std::uint64_t bytes) {
    const auto link = node.find_link(from, to);
    if (!link) return;
    const auto known = std::ranges::find(noted.links, *link, &MonitoredTraffic::OnLink::link);
    if (known == noted.links.end())
      noted.links.push_back({*link, bytes});
    else
      known->bytes += bytes;
  };
  for (const Traffic::Part& part : traffic.parts) {
    const MemoryId relay = MemoryId::gpu(gpus_[static_cast<std::size_t>(part.relay)]);
    add(own, relay, part.bytes);
    add(relay, MemoryId::gpu(comm_.gpu_of(part.rank)), part.bytes);
    noted.staged_bytes += part.bytes;
  }
  for (const MonitoredTraffic::OnLink& on : noted.links) {
    const Link& link = node.links[static_cast<std::size_t>(on.link)];
    noted.begun_us = std::max(noted.begun_us, 2 * transfer_us(traffic.first_bytes, link.gbps));
  }
  noted.begun_us = std::min(noted.begun_us, traffic.times.predicted_us / 2);
  noted.copies = std::max(1, traffic.copies / std::max(1, static_cast<int>(noted.links.size())));
  return noted;
}

std::unique_ptr<MonitoredIssue> RelayLoad::issue(const Traffic& traffic, CUstream stream) noexcept {
  if (!is_known() || traffic.parts.empty()) return nullptr;
  try {
    return begin_monitored(*load_, on_links(traffic), key_, stream,
                           LoadMonitor::Sampled::relayed_collective);
  } catch (const std::exception&) {
    return nullptr;  // it is not noted
  }
}

void RelayLoad::note_kernel(const Traffic& traffic) noexcept {
  if (!is_known() || traffic.parts.empty()) return;
  try {
    note_monitored(*load_, on_links(traffic), key_);
  } catch (const std::exception&) {
    // It is not noted.
  }
}

}  // namespace polypath
