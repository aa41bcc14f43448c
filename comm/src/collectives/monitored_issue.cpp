#include "collectives/monitored_issue.hpp"

#include <optional>
#include <utility>

#include "core/load_monitor.hpp"

namespace polypath {
namespace {

/// As it is timed.
Plan plan_of(const MonitoredTraffic& traffic) {
  TransferPlan transfer;
  transfer.request = {traffic.from, traffic.staged, traffic.direct_bytes + traffic.staged_bytes};
  transfer.routes.resize(2);
  RouteShare& direct = transfer.routes.front();
  direct.bytes = traffic.direct_bytes;
  RouteShare& staged = transfer.routes.back();
  staged.route = {
      traffic.staged.is_gpu() ? RouteKind::via_gpu : RouteKind::via_host, traffic.staged, {}};
  for (const MonitoredTraffic::OnLink& on : traffic.links) staged.route.legs.push_back(on.link);
  staged.offset = traffic.direct_bytes;
  staged.bytes = traffic.staged_bytes;
  staged.chunks = traffic.copies;
  Plan plan;
  plan.transfers.push_back(std::move(transfer));
  plan.predicted_us = traffic.predicted_us;
  plan.native_us = traffic.without_us;
  return plan;
}

/// As it is noted: with the bytes of each link.
Plan noted_plan_of(const MonitoredTraffic& traffic) {
  Plan plan;
  plan.predicted_us = traffic.predicted_us;
  TransferPlan& transfer = plan.transfers.emplace_back();
  for (const MonitoredTraffic::OnLink& on : traffic.links) {
    RouteShare& share = transfer.routes.emplace_back();
    share.route.legs.push_back(on.link);
    share.bytes = on.bytes;
  }
  return plan;
}

class Noted final : public MonitoredIssue {
 public:
  Noted(LoadMonitor& monitor, const MonitoredTraffic& traffic, std::uintptr_t key, CUstream stream)
      : monitor_(monitor),
        plan_(plan_of(traffic)),
        noted_(noted_plan_of(traffic)),
        stream_(stream) {
    look_.now_ns = monitor.now_ns();
    look_.streams.push_back(key);
    own_.emplace(monitor_, noted_, key);
    if (!monitor_.is_due_for_sample(plan_.transfers.front(), 0, look_.now_ns)) return;
    sample_ = monitor_.sample(plan_.transfers.front(), traffic.from.index, look_.now_ns);
    if (sample_ != nullptr) sample_->begin(monitor_.driver(), stream_);
  }
  void direct_issued() noexcept override {
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
  const Plan noted_;
  CUstream stream_;
  LoadLook look_;
  std::optional<LoadMonitor::OwnIssue> own_;
  std::shared_ptr<TransferSample> sample_;
};

}  // namespace

void note_monitored(LoadMonitor& monitor, const MonitoredTraffic& traffic, std::uintptr_t key) {
  LoadLook look;
  look.now_ns = monitor.now_ns();
  look.streams.push_back(key);
  const Plan noted = noted_plan_of(traffic);
  LoadMonitor::OwnIssue(monitor, noted, key).end(true);
  monitor.note_split(plan_of(traffic), look);
}

std::unique_ptr<MonitoredIssue> begin_monitored(LoadMonitor& monitor,
                                                const MonitoredTraffic& traffic, std::uintptr_t key,
                                                CUstream stream) {
  return std::make_unique<Noted>(monitor, traffic, key, stream);
}

}  // namespace polypath
