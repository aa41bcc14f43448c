#include "collectives/host_link_load.hpp"

#include <utility>

#include "core/load_monitor.hpp"

namespace polypath {
namespace {

/// The kernel is the direct route, and the links of this rank's GPU are the staged one.
class MonitoredLinks final : public HostLinkLoad {
 public:
  MonitoredLinks(LoadMonitor& monitor, int gpu, MemoryId host, std::vector<int> links)
      : monitor_(monitor), gpu_(gpu), host_(host), links_(std::move(links)) {}

  [[nodiscard]] std::uint64_t now_ns() const override { return monitor_.now_ns(); }

  bool is_loaded(const MixedTraffic& traffic, CUstream stream) override {
    const LoadLook look = monitor_.look(LoadMonitor::stream_key(stream, gpu_));
    return monitor_.is_loaded(
        route(), tolerance(traffic.predicted_us, traffic.without_us, /*staged=*/1), look);
  }

  std::unique_ptr<MonitoredIssue> issue(const MixedTraffic& traffic, CUstream stream) override {
    MonitoredTraffic noted;
    noted.from = MemoryId::gpu(gpu_);
    noted.staged = host_;
    noted.direct_bytes = traffic.kernel_bytes;
    noted.staged_bytes = traffic.host_bytes;
    noted.copies = traffic.copies;
    noted.predicted_us = traffic.predicted_us;
    noted.without_us = traffic.without_us;
    for (const int link : links_) noted.links.push_back({link, traffic.host_bytes});
    return begin_monitored(monitor_, noted, LoadMonitor::stream_key(stream, gpu_), stream);
  }

 private:
  [[nodiscard]] Route route() const { return {RouteKind::via_host, host_, links_}; }

  LoadMonitor& monitor_;
  const int gpu_;
  const MemoryId host_;
  const std::vector<int> links_;  // to host memory, and from it
};

}  // namespace

std::unique_ptr<HostLinkLoad> watch_host_links(LoadMonitor& monitor, const Node& node, int gpu) {
  if (!monitor.is_on()) return nullptr;
  const MemoryId host = MemoryId::host(node.gpus[static_cast<std::size_t>(gpu)].numa);
  const auto down = node.find_link(MemoryId::gpu(gpu), host);
  const auto up = node.find_link(host, MemoryId::gpu(gpu));
  if (!down || !up) return nullptr;
  return std::make_unique<MonitoredLinks>(monitor, gpu, host, std::vector{*down, *up});
}

}  // namespace polypath
