#include "core/load_monitor.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/log.hpp"
#include "base/units.hpp"
#include "core/classifier.hpp"
#include "driver/library.hpp"
#include "exec/relaxed_capture.hpp"
#include "registry/registry.hpp"

namespace polypath {
namespace {

/// visit(number of the transfer, share, leg) for each link that the plan uses.
template <typename Visit>
void for_each_leg(const Plan& plan, Visit&& visit) {
  for (std::size_t transfer = 0; transfer < plan.transfers.size(); ++transfer)
    for (const RouteShare& share : plan.transfers[transfer].routes)
      for (const int leg : share.route.legs) visit(transfer, share, leg);
}

constexpr const char* kVirtualClock = "polypath_sim_clock_us";

/// Smaller copies are not counted: looking at them costs a part of their own call.
constexpr std::uint64_t kMinNoted = 16 * kKiB;
/// Native copies that occupy a link for less delay no sample by what counts.
constexpr std::uint64_t kMinOwnNs = 5'000;
/// The load of a link is published again when it is occupied for this time longer than published.
constexpr std::uint64_t kPublishNs = 50'000;
/// How long the place of memory is remembered.
constexpr std::uint64_t kPageKnownNs = 1'000'000;
/// The driver's pages have 2 MiB.
constexpr int kPageShift = 21;
/// How long a measured state counts for others unless it is published again.
constexpr std::uint64_t kMeasuredForNs = MeasuredLink::kMaxPollIntervalNs + 5'000'000;
/// The links of a route are sampled again after this time. A sample delays its transfer by some 10
/// us: of a link in constant use that is less than half a percent of the time, and a caller that
/// leaves its links idle for a while hardly notices it.
constexpr std::uint64_t kSampleEveryNs = 1'000'000;
constexpr std::uint64_t kSampleBusyEveryNs = 4'000'000;
constexpr std::uint64_t kIdleBetweenNs = 200'000;
/// A caller that comes back this much later than a sample was due loses nothing worth counting when
/// the sample is read before its next transfer.
constexpr std::uint64_t kAwayNs = 1'000'000;

std::uint64_t next_id() noexcept {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

std::function<std::uint64_t()> clock_of(const NodeSource& source) {
  if (source.virtual_time) {
    void* const library = open_library(source.driver->library, nullptr);
    auto* const clock =
        library == nullptr ? nullptr : find_symbol<double (*)()>(library, kVirtualClock);
    if (clock != nullptr)
      return [clock] { return static_cast<std::uint64_t>(std::max(0.0, clock()) * 1e3); };
  }
  return monotonic_ns;
}

}  // namespace

LoadMonitor::LoadMonitor(const NodeSource& source, const Options& options, Devices& devices,
                         ImportedMemories& imports, RouteResources& resources,
                         PeerProcesses& others)
    : driver_(source.driver),
      node_(source.node),
      imports_(imports),
      others_(others),
      id_(next_id()),
      is_virtual_(source.virtual_time),
      clock_(clock_of(source)),
      table_(source.node),
      published_ns_(2 * static_cast<std::size_t>(table_.slots())),
      sampled_ns_(static_cast<std::size_t>(table_.slots())),
      is_wanted_(static_cast<std::size_t>(table_.slots())),
      timed_(resources.timed_events()),
      probes_(driver_, source.node, devices, resources, clock_),
      measured_(static_cast<std::size_t>(table_.slots())) {
  // An emulated mesh's kernels share GPUs, so its times say nothing of links.
  const bool has_times =
      (!source.simulated || source.virtual_time) && source.emulated_mesh_gbps == 0;
  switch (options.load) {
    case LoadMode::automatic: is_on_ = is_measuring_ = has_times; break;
    case LoadMode::all: is_on_ = is_measuring_ = true; break;
    case LoadMode::known: is_on_ = true; break;
    case LoadMode::off: break;
  }
  use(source.node);
}

LoadMonitor::~LoadMonitor() {
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
    if (thread_.joinable()) thread_.request_stop();
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void LoadMonitor::use(const Node& node) {
  const std::lock_guard lock(mutex_);
  table_.clear();
  loaded_count_ = 0;
  kept_.clear();
  kept_count_ = 0;
  for (int slot = 0; slot < table_.slots(); ++slot) {
    Measured& measured = measured_[static_cast<std::size_t>(slot)];
    measured.link = MeasuredLink(LinkProbes::model_us(node, table_.link_of(slot)));
    if (measured.is_under_way) measured.link.probe_began();
    sampled_ns_[static_cast<std::size_t>(slot)] = 0;
  }
}

std::uintptr_t LoadMonitor::stream_key(CUstream stream, int gpu) noexcept {
  return is_special_stream(stream) ? 1 + static_cast<std::uintptr_t>(gpu + 1)
                                   : reinterpret_cast<std::uintptr_t>(stream);
}

// ---- copies of this process ---------------------------------------------------------------------

LoadMonitor::Page& LoadMonitor::page_of(CUdeviceptr address) noexcept {
  constexpr std::size_t kPages = 32;
  static thread_local std::array<Page, kPages> pages;
  const std::uint64_t page = address >> kPageShift;
  return pages[(page ^ page >> 7) % kPages];
}

void LoadMonitor::note_memory(CUdeviceptr address, const PointerInfo& info) noexcept {
  if (!is_on_) return;
  page_of(address) = {id_, address >> kPageShift, now_ns(),
                      info.kind == PointerInfo::Kind::device ? info.gpu : -1};
}

int LoadMonitor::gpu_of(CUdeviceptr address, std::uint64_t now_ns) {
  // Memory of GPUs and of the host never shares a page of theirs. But what was freed may be another
  // GPU's soon, and copies noted for a wrong link leave theirs to transfers that then wait for
  // them.
  Page& known = page_of(address);
  const std::uint64_t page = address >> kPageShift;
  if (known.monitor != id_ || known.page != page || now_ns - known.asked_ns > kPageKnownNs) {
    const PointerInfo info = inspect(*driver_, imports_, address);
    known = {id_, page, now_ns, info.kind == PointerInfo::Kind::device ? info.gpu : -1};
  }
  return known.gpu;
}

void LoadMonitor::note_copy(CUdeviceptr dst, CUdeviceptr src, std::uint64_t bytes,
                            CUstream stream) noexcept {
  if (!is_on_ || bytes < kMinNoted) return;
  try {
    const std::uint64_t now = now_ns();
    const int to = gpu_of(dst, now);
    const int from = gpu_of(src, now);
    const bool is_between_gpus = to >= 0 && from >= 0;
    const int gpu = std::max(to, from);
    const int slot = is_between_gpus ? table_.gpu_slot(from, to) : table_.host_slot(gpu, to < 0);
    if (slot < 0) return;
    const double gbps = node_.links[static_cast<std::size_t>(table_.link_of(slot))].gbps;
    const auto ns = static_cast<std::uint64_t>(static_cast<double>(bytes) / gbps);
    if (is_between_gpus && ns < kMinOwnNs) return;
    const std::uintptr_t key = stream_key(stream, gpu);
    if (ns >= kMinOwnNs) table_.add_own(slot, now, ns, key);
    if (is_between_gpus) return;
    table_.add_copy(slot, now, ns, key);
    publish(slot, now, false);
  } catch (const std::exception&) {
    // It is not counted.
  }
}

bool LoadMonitor::is_occupied_by_own(MemoryId src, MemoryId dst) const noexcept {
  if (!is_on_) return false;
  const int slot = src.is_gpu() && dst.is_gpu() ? table_.gpu_slot(src.index, dst.index)
                   : src.is_gpu()               ? table_.host_slot(src.index, true)
                                                : table_.host_slot(dst.index, false);
  return slot >= 0 && table_.own_left_ns(slot, now_ns()) > 0;
}

bool LoadMonitor::is_occupied_by_others(const Route& route, const Tolerance& tolerance,
                                        const LoadLook& look) const noexcept {
  return is_on_ && std::ranges::any_of(route.legs, [&](int leg) {
           return table_.others_left_ns(table_.slot_of(leg), look.streams, look.now_ns) >
                  tolerance.ns;
         });
}

LoadMonitor::OwnIssue::OwnIssue(LoadMonitor& monitor, const Plan& plan,
                                std::uintptr_t stream) noexcept
    : monitor_(monitor), plan_(plan), stream_(stream), is_open_(monitor.is_on_) {
  if (!is_open_) return;
  begun_ns_ = monitor_.now_ns();
  for_each_leg(plan_, [&](std::size_t, const RouteShare& share, int leg) {
    const int slot = monitor_.table_.slot_of(leg);
    monitor_.table_.begin_issue(slot);
    // A group is planned together, so that its streams count as one.
    monitor_.table_.add_own(slot, begun_ns_, monitor_.occupied_ns(plan_, share, leg), stream_);
  });
}

void LoadMonitor::OwnIssue::end(bool has_issued) noexcept {
  if (!std::exchange(is_open_, false)) return;
  const std::uint64_t now = has_issued ? monitor_.now_ns() : 0;
  for_each_leg(plan_, [&](std::size_t, const RouteShare& share, int leg) {
    const int slot = monitor_.table_.slot_of(leg);
    if (has_issued)
      monitor_.table_.extend_own(slot, now, monitor_.occupied_ns(plan_, share, leg), stream_);
    monitor_.table_.end_issue(slot);
  });
}

std::uint64_t LoadMonitor::occupied_ns(const Plan& plan, const RouteShare& share, int leg) const {
  const Link& link = node_.links[static_cast<std::size_t>(leg)];
  // Where links share a port, its bytes take longer: as long as the transfer at most.
  return static_cast<std::uint64_t>(
      std::max(static_cast<double>(share.bytes) / link.gbps, plan.predicted_us * 1e3));
}

void LoadMonitor::note_split(const Plan& plan, const LoadLook& look) noexcept {
  if (!is_on_) return;
  const std::uint64_t now = now_ns();
  int slot_to_publish = -1;
  for_each_leg(plan, [&](std::size_t transfer, const RouteShare& share, int leg) {
    const Link& link = node_.links[static_cast<std::size_t>(leg)];
    if (link.from.is_gpu() && link.to.is_gpu()) return;
    const auto ns = static_cast<std::uint64_t>(static_cast<double>(share.bytes) / link.gbps);
    const int slot = table_.slot_of(leg);
    if (share.route.staged())
      table_.add_staged(slot, now, ns);
    else
      table_.add_copy(slot, now, ns, look.streams[transfer]);
    slot_to_publish = slot;
  });
  try {
    if (slot_to_publish >= 0) publish(slot_to_publish, now, false);
  } catch (const std::exception&) {
    // Others learn nothing of it.
  }
}

void LoadMonitor::publish(int slot, std::uint64_t now_ns, bool is_urgent) {
  const std::array<std::uint64_t, 2> untils{table_.direct_end_ns(slot),
                                            table_.staged(slot).until_ns()};
  for (std::size_t kind = 0; kind < 2; ++kind) {
    auto& published = published_ns_[2 * static_cast<std::size_t>(slot) + kind];
    const std::uint64_t told_ns =
        OccupiedUntil::left_ns(published.load(std::memory_order_relaxed), now_ns);
    if (OccupiedUntil::left_ns(untils[kind], now_ns) < told_ns + kPublishNs) continue;
    published.store(untils[kind], std::memory_order_relaxed);
    is_urgent = true;
  }
  if (!is_urgent) return;
  std::vector<LoadRecord> records(node_.gpus.size());
  for (std::size_t gpu = 0; gpu < records.size(); ++gpu) {
    for (const bool to_host : {true, false}) {
      const int host_slot = table_.host_slot(static_cast<int>(gpu), to_host);
      if (host_slot < 0) continue;
      LoadWords& words = to_host ? records[gpu].to_host : records[gpu].from_host;
      words.direct_until_ns = table_.direct_end_ns(host_slot);
      words.staged_until_ns = table_.staged(host_slot).until_ns();
      words.busy_ns = table_.busy_ns(host_slot);
      if (table_.is_measured(host_slot)) words.measured_until_ns = now_ns + kMeasuredForNs;
    }
  }
  others_.tell_loads(std::move(records));
}

// ---- the transfer that is planned now -----------------------------------------------------------

void LoadMonitor::add_others(LoadLook& look, const std::vector<GpuLoad>& loads) const {
  for (const GpuLoad& other : loads) {
    for (const bool to_host : {true, false}) {
      const int slot = table_.host_slot(other.gpu, to_host);
      const LoadWords& words = to_host ? other.to_host : other.from_host;
      if (slot >= 0)
        look.others.push_back({slot, other.pid, words.direct_until_ns, words.staged_until_ns,
                               words.measured_until_ns});
    }
  }
}

void LoadMonitor::look(LoadLook& look, bool is_followed) noexcept {
  look.now_ns = now_ns();
  if (!is_measuring_) return;
  if (kept_count_.load(std::memory_order_relaxed) > 0) {
    const bool may_wait = is_followed && !is_in_doubt_.load(std::memory_order_relaxed);
    const std::uint64_t pause_ns = may_wait ? kAwayNs : 0;
    if (is_past(next_read_ns_.load(std::memory_order_relaxed) + pause_ns, look.now_ns))
      try_read_samples(look.now_ns);
  }
  if (!is_virtual_ || loaded_count_.load(std::memory_order_relaxed) == 0) return;
  try {
    const RelaxedCapture relaxed(*driver_);
    // Another thread may be in a call of the driver: it does all pending work.
    std::unique_lock lock(mutex_, std::try_to_lock);
    if (lock) step(lock, look.now_ns);
  } catch (const std::exception& error) {
    log_info("the load of links is not measured: {}", error.what());
  }
}

void LoadMonitor::look_after_issue() noexcept {
  if (!is_measuring_ || kept_count_.load(std::memory_order_relaxed) == 0) return;
  const std::uint64_t now = now_ns();
  if (is_past(next_read_ns_.load(std::memory_order_relaxed), now)) try_read_samples(now);
}

void LoadMonitor::try_read_samples(std::uint64_t now_ns) noexcept {
  try {
    read_samples(now_ns);
  } catch (const std::exception& error) {
    log_info("the load of links is not measured: {}", error.what());
  }
}

LoadLook LoadMonitor::look(std::uintptr_t stream) {
  LoadLook now;
  look(now, false);
  now.streams.push_back(stream);
  add_others(now, others_.loads());
  return now;
}

bool LoadMonitor::is_loaded(const Route& route, const Tolerance& tolerance,
                            const LoadLook& look) noexcept {
  if (!is_on_) return false;
  bool is_any = false;
  for (const int leg : route.legs) {
    const int slot = table_.slot_of(leg);
    const LinkState state = table_.state(slot, look.now_ns, tolerance, look.streams, look.others);
    if (state.source == LoadSource::none) continue;
    is_any = true;
    if (state.source != LoadSource::measured) continue;
    is_wanted_[static_cast<std::size_t>(slot)].store(true, std::memory_order_relaxed);
    if (is_virtual_ || !is_past(next_probe_ns_.load(std::memory_order_relaxed), look.now_ns))
      continue;
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (lock) wake();
  }
  return is_any;
}

bool LoadMonitor::is_due_for_sample(const TransferPlan& transfer, std::size_t taken,
                                    std::uint64_t now_ns) const noexcept {
  if (!is_measuring_ || kept_count_.load(std::memory_order_relaxed) + taken >= kMaxSamples)
    return false;
  return std::ranges::any_of(transfer.routes, [&](const RouteShare& share) {
    return share.route.staged() && std::ranges::any_of(share.route.legs, [&](int leg) {
             const int slot = table_.slot_of(leg);
             const std::uint64_t last =
                 sampled_ns_[static_cast<std::size_t>(slot)].load(std::memory_order_relaxed);
             const bool is_busy = table_.was_own(slot, now_ns, kIdleBetweenNs);
             // 0: never. A clock that jumped back: as long ago as can be.
             return last == 0 || now_ns - last >= (is_busy ? kSampleBusyEveryNs : kSampleEveryNs);
           });
  });
}

std::shared_ptr<TransferSample> LoadMonitor::sample(const TransferPlan& plan, int caller_gpu,
                                                    std::uint64_t now_ns) noexcept {
  for (const RouteShare& share : plan.routes)
    if (share.route.staged())
      for (const int leg : share.route.legs)
        sampled_ns_[static_cast<std::size_t>(table_.slot_of(leg))].store(
            std::max<std::uint64_t>(now_ns, 1), std::memory_order_relaxed);
  try {
    return std::make_shared<TransferSample>(timed_, caller_gpu);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void LoadMonitor::keep(std::shared_ptr<TransferSample> sample, const Plan& plan,
                       std::size_t transfer, const LoadLook& look, std::uint64_t begun_ns,
                       Sampled sampled) noexcept {
  try {
    KeptSample kept{.sample = std::move(sample),
                    .stream = look.streams.front(),
                    .sampled = sampled,
                    .kept_ns = begun_ns};
    const double issued_us = static_cast<double>(now_ns() - begun_ns) / 1e3;
    const auto& routes = plan.transfers[transfer].routes;
    kept.launch_us = node_.costs.graph_launch_us;
    for (const RouteShare& share : routes)
      kept.launch_us += node_.costs.graph_launch_node_us * share.chunks *
                        static_cast<double>(share.route.legs.size());
    const bool is_of_graph = kept.sample->is_of_graph();
    IssueTimes& times = sampled == Sampled::collective ? collective_times_
                        : is_of_graph                  ? launch_times_
                                                       : issue_times_;
    kept.halted_us =
        times.add(issued_us, is_of_graph ? kept.launch_us : polypath::issue_us(plan, node_.costs));
    kept.launch_us *= launch_times_.ratio();
    for (std::size_t r = 0; r < routes.size(); ++r) {
      kept.parts.push_back(static_cast<double>(routes[r].bytes) /
                           static_cast<double>(plan.transfers[transfer].request.bytes));
      if (!routes[r].route.staged()) kept.direct_part = kept.parts.back();
      for (const int leg : routes[r].route.legs)
        kept.legs.push_back({r, routes[r].route.staged(), leg});
    }
    if (!was_alone(kept, false)) return;
    kept.predicted_us = plan.predicted_us;
    kept.native_us = plan.native_us;
    kept.due_ns = begun_ns + static_cast<std::uint64_t>(plan.predicted_us * 1e3);
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock || kept_.size() >= kMaxSamples) return;
    if (kept_.empty()) next_read_ns_ = kept.due_ns;
    kept_.push_back(std::move(kept));
    kept_count_ = kept_.size();
  } catch (const std::bad_alloc&) {
    // Another one will be kept.
  }
}

// ---- for people ---------------------------------------------------------------------------------

std::vector<LinkLoadInfo> LoadMonitor::loads() {
  LoadLook now;
  now.now_ns = now_ns();
  const auto others = others_.loads();
  add_others(now, others);
  std::vector<LinkLoadInfo> infos;
  for (int slot = 0; slot < table_.slots(); ++slot) {
    LinkLoadInfo info{.link = table_.link_of(slot)};
    info.state = table_.state(slot, now.now_ns, {}, {}, now.others);
    if (info.state.source == LoadSource::measured) {
      const std::lock_guard lock(mutex_);
      info.state.wait_us = measured_[static_cast<std::size_t>(slot)].link.wait_us();
    }
    info.busy_ns.emplace_back(static_cast<int>(getpid()), table_.busy_ns(slot));
    for (const GpuLoad& other : others)
      for (const bool to_host : {true, false})
        if (table_.host_slot(other.gpu, to_host) == slot)
          info.busy_ns.emplace_back(other.pid, (to_host ? other.to_host : other.from_host).busy_ns);
    infos.push_back(std::move(info));
  }
  return infos;
}

}  // namespace polypath
