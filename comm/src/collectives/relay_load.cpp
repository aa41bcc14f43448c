#include "collectives/relay_load.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "core/load_monitor.hpp"

namespace polypath {

RelayLoad::RelayLoad(LoadMonitor* load, const Communicator& communicator, std::vector<int> gpus,
                     std::uintptr_t key)
    : load_(load), comm_(communicator), gpus_(std::move(gpus)), key_(key) {}

bool RelayLoad::is_known() const noexcept { return load_ != nullptr && load_->is_on(); }

std::uint64_t RelayLoad::now_ns() const { return is_known() ? load_->now_ns() : 0; }

bool RelayLoad::is_any_loaded(const Times& times, CUstream stream) {
  if (!is_known()) return false;
  LoadLook look = load_->look(LoadMonitor::stream_key(stream, comm_.gpu()));
  look.streams.push_back(key_);
  const Tolerance waits =
      tolerance(times.predicted_us, times.without_us, static_cast<int>(gpus_.size()));
  const Node& node = comm_.node();
  bool is_any = false;
  // All links are asked for: a loaded one is probed again only then.
  for (const int gpu : gpus_)
    for (int rank = 0; rank < comm_.size(); ++rank) {
      if (rank == comm_.rank()) continue;
      const MemoryId between = MemoryId::gpu(gpu);
      const auto in = node.find_link(MemoryId::gpu(comm_.gpu()), between);
      const auto out = node.find_link(between, MemoryId::gpu(comm_.gpu_of(rank)));
      if (!in || !out) continue;
      const Route route{RouteKind::via_gpu, between, {*in, *out}};
      const bool is_now = load_->is_loaded(route, waits, look);
      if (is_now || load_->is_occupied_by_others(route, waits, look)) is_any = true;
    }
  return is_any;
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
  noted.copies = static_cast<int>(std::max<std::size_t>(
      1, traffic.parts.size() / std::max<std::size_t>(1, noted.links.size())));
  return noted;
}

void RelayLoad::note(const Traffic& traffic) noexcept {
  if (!is_known() || traffic.parts.empty()) return;
  try {
    note_monitored(*load_, on_links(traffic), key_);
  } catch (const std::exception&) {
    // It is not noted.
  }
}

}  // namespace polypath
