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

bool Relays::is_loaded(int gpu, double predicted_us, double without_us, CUstream stream) {
  if (source_.load == nullptr) return false;
  const Node& node = comm_.node();
  const LoadLook look = source_.load->look(LoadMonitor::stream_key(stream, comm_.gpu()));
  const Tolerance waits = tolerance(predicted_us, without_us, static_cast<int>(gpus_.size()));
  for (int rank = 0; rank < comm_.size(); ++rank) {
    if (rank == comm_.rank()) continue;
    const auto in = node.find_link(MemoryId::gpu(comm_.gpu()), MemoryId::gpu(gpu));
    const auto out = node.find_link(MemoryId::gpu(gpu), MemoryId::gpu(comm_.gpu_of(rank)));
    if (in && out &&
        source_.load->is_loaded({RouteKind::via_gpu, MemoryId::gpu(gpu), {*in, *out}}, waits, look))
      return true;
  }
  return false;
}

std::vector<Relay*> Relays::for_call(double predicted_us, double without_us, CUstream stream) {
  std::vector<Relay*> usable(gpus_.size(), nullptr);
  for (std::size_t i = 0; i < gpus_.size(); ++i) {
    {
      const std::lock_guard lock(mutex_);
      usable[i] = ready_[i].get();
    }
    if (usable[i] == nullptr) continue;
    if (!usable[i]->is_alive()) {
      lose(*usable[i]);
      usable[i] = nullptr;
    } else if (is_loaded(gpus_[i], predicted_us, without_us, stream)) {
      usable[i] = nullptr;
    }
  }
  return usable;
}

void Relays::lose(Relay& relay) noexcept {
  log_warn("collectives do without gpu{} as a relay from now on", relay.gpu());
  const std::lock_guard lock(mutex_);
  for (std::unique_ptr<Relay>& ready : ready_)
    if (ready.get() == &relay) lost_.push_back(std::move(ready));
}

}  // namespace polypath
