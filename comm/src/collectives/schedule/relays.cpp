#include "collectives/schedule/relays.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "core/load_monitor.hpp"
#include "driver/check.hpp"
#include "driver/context_guard.hpp"
#include "exec/devices.hpp"
#include "exec/relaxed_capture.hpp"

namespace polypath {

Relay::Relay(Devices& devices, const Communicator& communicator, const SymmetricMemory& scratch,
             int gpu, std::uint64_t bytes)
    : devices_(devices), driver_(communicator.driver()), gpu_(gpu) {
  const RelaxedCapture relaxed(driver_);  // other threads may capture
  devices.require_staging(gpu, bytes);
  context_ = devices.context(gpu);
  devices.enable_peer_access(communicator.gpu(), gpu);
  staging_ =
      std::make_unique<StagingMemory>(devices.driver(), communicator.node(), MemoryId::gpu(gpu),
                                      bytes, gpu, context_, devices.pinned());
  staging_->enable_access(communicator.gpu());
  ContextGuard guard(driver_);
  try {
    for (int rank = 0; rank < communicator.size(); ++rank) {
      streams_.emplace_back(driver_, context_);
      const CUipcMemHandle* const handle = scratch.handle(rank);
      if (handle == nullptr) {
        devices.enable_peer_access(gpu, communicator.gpu_of(rank));
        scratch_.push_back(scratch.address(rank));
        continue;
      }
      guard.use(context_);
      CUdeviceptr address = 0;
      POLYPATH_CHECK(driver_,
                     ipc_open_mem_handle(&address, *handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
      imports_.push_back(address);
      scratch_.push_back(address);
      if (driver_.memory_imported != nullptr)
        driver_.memory_imported(address, scratch.bytes(), communicator.gpu_of(rank), context_);
    }
  } catch (...) {
    close();
    throw;
  }
}

Relay::~Relay() {
  if (is_alive()) {
    close();
  } else {
    staging_->abandon();
  }
}

void Relay::close() noexcept {
  try {
    ContextGuard guard(driver_);
    guard.use(context_);
    for (const CUdeviceptr import : imports_) POLYPATH_WARN(driver_, ipc_close_mem_handle(import));
  } catch (const DriverError& error) {
    log_warn("scratch of another process was not closed: {}", error.what());
  }
}

CUevent Relay::event(std::size_t place) {
  while (events_.size() <= place) events_.emplace_back();
  if (events_[place] == nullptr)
    events_[place] = std::make_unique<Event>(driver_, context_, CU_EVENT_DISABLE_TIMING);
  return events_[place]->get();
}

bool Relay::is_alive() const noexcept { return !devices_.has_failed(gpu_) && devices_.alive(gpu_); }

Relays::Relays(const RelaySource& source, const Communicator& communicator,
               const SymmetricMemory& scratch, std::vector<int> gpus, std::uint64_t bytes)
    : source_(source),
      comm_(communicator),
      scratch_(scratch),
      gpus_(std::move(gpus)),
      bytes_(bytes),
      ready_(gpus_.size()) {}

void Relays::prepare() {
  if (std::exchange(has_begun_, true)) return;
  preparing_.add([this] {
    for (std::size_t i = 0; i < gpus_.size(); ++i) try {
        auto relay = std::make_unique<Relay>(*source_.devices, comm_, scratch_, gpus_[i], bytes_);
        const std::lock_guard lock(mutex_);
        ready_[i] = std::move(relay);
      } catch (const Error& error) {
        log_info("collectives do without gpu{} as a relay: {}", gpus_[i], error.what());
      }
  });
}

std::uintptr_t Relays::key() const noexcept {
  return static_cast<std::uintptr_t>(scratch_.address(0));  // no other communicator's
}

bool Relays::watches_load() const noexcept {
  return source_.load != nullptr && source_.load->is_on();
}

std::uint64_t Relays::now_ns() const { return watches_load() ? source_.load->now_ns() : 0; }

struct Relays::Look {
  LoadLook load;
  Tolerance waits;
};

Relays::Look Relays::look(double predicted_us, double without_us, CUstream stream) {
  if (!watches_load()) return {};
  LoadLook load = source_.load->look(LoadMonitor::stream_key(stream, comm_.gpu()));
  load.streams.push_back(key());
  return {std::move(load), tolerance(predicted_us, without_us, static_cast<int>(gpus_.size()))};
}

bool Relays::is_loaded(int gpu, const Look& look) {
  if (!watches_load()) return false;
  const Node& node = comm_.node();
  bool is_any = false;  // all links are asked for: a loaded one is probed again only then
  for (int rank = 0; rank < comm_.size(); ++rank) {
    if (rank == comm_.rank()) continue;
    const auto in = node.find_link(MemoryId::gpu(comm_.gpu()), MemoryId::gpu(gpu));
    const auto out = node.find_link(MemoryId::gpu(gpu), MemoryId::gpu(comm_.gpu_of(rank)));
    if (!in || !out) continue;
    const Route route{RouteKind::via_gpu, MemoryId::gpu(gpu), {*in, *out}};
    const bool is_now = source_.load->is_loaded(route, look.waits, look.load);
    is_any = is_any || is_now || source_.load->is_occupied_by_others(route, look.waits, look.load);
  }
  return is_any;
}

bool Relays::are_ready() {
  const std::lock_guard lock(mutex_);
  return std::ranges::all_of(ready_, [](const std::unique_ptr<Relay>& relay) {
    return relay != nullptr && relay->is_alive();
  });
}

bool Relays::are_loaded(double predicted_us, double without_us, CUstream stream) {
  const Look now = look(predicted_us, without_us, stream);
  bool is_any = false;
  for (const int gpu : gpus_) is_any = is_loaded(gpu, now) || is_any;
  return is_any;
}

std::vector<Relay*> Relays::for_call(double predicted_us, double without_us, CUstream stream) {
  std::vector<Relay*> usable(gpus_.size(), nullptr);
  const Look now = look(predicted_us, without_us, stream);
  for (std::size_t i = 0; i < gpus_.size(); ++i) {
    {
      const std::lock_guard lock(mutex_);
      usable[i] = ready_[i].get();
    }
    if (usable[i] == nullptr) continue;
    if (!usable[i]->is_alive()) {
      lose(*usable[i]);
      usable[i] = nullptr;
    } else if (is_loaded(gpus_[i], now)) {
      usable[i] = nullptr;
    }
  }
  return usable;
}

std::unique_ptr<MonitoredIssue> Relays::issue(const Traffic& traffic, CUstream stream) noexcept {
  if (!watches_load() || traffic.parts.empty()) return nullptr;
  try {
    const Node& node = comm_.node();
    const MemoryId own = MemoryId::gpu(comm_.gpu());
    MonitoredTraffic noted;
    noted.from = own;
    noted.staged = MemoryId::gpu(gpus_.front());
    noted.direct_bytes = traffic.direct_bytes;
    noted.predicted_us = traffic.predicted_us;
    noted.without_us = traffic.without_us;
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
    noted.begun_us = std::min(noted.begun_us, traffic.predicted_us / 2);
    noted.copies = std::max(1, traffic.copies / static_cast<int>(noted.links.size()));
    return begin_monitored(*source_.load, noted, key(), stream,
                           LoadMonitor::Sampled::relayed_collective);
  } catch (const std::exception&) {
    return nullptr;  // it is not noted
  }
}

void Relays::lose(Relay& relay) noexcept {
  log_warn("collectives do without gpu{} as a relay from now on", relay.gpu());
  const std::lock_guard lock(mutex_);
  for (std::unique_ptr<Relay>& ready : ready_)
    if (ready.get() == &relay) lost_.push_back(std::move(ready));
}

}  // namespace polypath
