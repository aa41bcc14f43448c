#include "collectives/host_link_load.hpp"

#include <optional>
#include <utility>

#include "core/load_monitor.hpp"

namespace polypath {
namespace {

/// For the monitor a call is a transfer by two routes: the kernel is the direct one, and the links
/// of this rank's GPU are the staged one.
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

  class Noted final : public Issue {
   public:
    Noted(LoadMonitor& monitor, Plan plan, CUstream stream, int gpu)
        : monitor_(monitor), plan_(std::move(plan)), stream_(stream) {
      look_.now_ns = monitor.now_ns();
      look_.streams.push_back(LoadMonitor::stream_key(stream, gpu));
      own_.emplace(monitor_, plan_, look_.streams.front());
      if (!monitor_.is_due_for_sample(plan_.transfers.front(), 0, look_.now_ns)) return;
      sample_ = monitor_.sample(plan_.transfers.front(), gpu, look_.now_ns);
      if (sample_ != nullptr) sample_->begin(monitor_.driver(), stream_);
    }
    void kernel_issued() noexcept override {
      if (sample_ != nullptr) sample_->direct(monitor_.driver(), stream_);
    }
    void all_issued() noexcept override {
      if (sample_ != nullptr) sample_->route(monitor_.driver(), stream_, kStaged);
      own_->end(true);
      if (sample_ != nullptr)
        monitor_.keep(std::move(sample_), plan_, 0, look_, own_->begun_ns(),
                      LoadMonitor::Sampled::collective);
      monitor_.note_split(plan_, look_);
    }

   private:
    static constexpr std::size_t kStaged = 1;  // of the plan's routes

    LoadMonitor& monitor_;
    const Plan plan_;
    CUstream stream_;
    LoadLook look_;
    std::optional<LoadMonitor::OwnIssue> own_;
    std::shared_ptr<TransferSample> sample_;
  };

  std::unique_ptr<Issue> issue(const MixedTraffic& traffic, CUstream stream) override {
    return std::make_unique<Noted>(monitor_, plan_of(traffic), stream, gpu_);
  }

 private:
  [[nodiscard]] Route route() const { return {RouteKind::via_host, host_, links_}; }

  [[nodiscard]] Plan plan_of(const MixedTraffic& traffic) const {
    TransferPlan transfer;
    transfer.request = {MemoryId::gpu(gpu_), host_, traffic.kernel_bytes + traffic.host_bytes};
    transfer.routes.resize(2);
    RouteShare& direct = transfer.routes.front();
    direct.bytes = traffic.kernel_bytes;
    RouteShare& staged = transfer.routes.back();
    staged.route = route();
    staged.offset = traffic.kernel_bytes;
    staged.bytes = traffic.host_bytes;
    staged.chunks = traffic.copies;
    Plan plan;
    plan.transfers.push_back(std::move(transfer));
    plan.predicted_us = traffic.predicted_us;
    plan.native_us = traffic.without_us;
    return plan;
  }

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
