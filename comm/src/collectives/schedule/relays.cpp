#include "collectives/schedule/relays.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
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

Relays::Relays(Devices& devices, const Communicator& communicator, const SymmetricMemory& scratch,
               RelayLoad& load, std::uint64_t bytes)
    : devices_(devices),
      comm_(communicator),
      scratch_(scratch),
      load_(load),
      bytes_(bytes),
      ready_(load.gpus().size()) {}

void Relays::prepare() {
  if (std::exchange(has_begun_, true)) return;
  preparing_.add([this] {
    const std::vector<int>& gpus = load_.gpus();
    for (std::size_t i = 0; i < gpus.size(); ++i) try {
        auto relay = std::make_unique<Relay>(devices_, comm_, scratch_, gpus[i], bytes_);
        const std::lock_guard lock(mutex_);
        ready_[i] = std::move(relay);
      } catch (const Error& error) {
        log_info("collectives do without gpu{} as a relay: {}", gpus[i], error.what());
      }
  });
}

bool Relays::are_ready() {
  const std::lock_guard lock(mutex_);
  return std::ranges::all_of(ready_, [](const std::unique_ptr<Relay>& relay) {
    return relay != nullptr && relay->is_alive();
  });
}

std::vector<Relay*> Relays::for_call(const RelayLoad::Times& times, CUstream stream) {
  std::vector<Relay*> usable(size(), nullptr);
  const std::vector<bool> loaded = load_.loaded(times, stream);
  for (std::size_t i = 0; i < usable.size(); ++i) {
    {
      const std::lock_guard lock(mutex_);
      usable[i] = ready_[i].get();
    }
    if (usable[i] == nullptr) continue;
    if (!usable[i]->is_alive()) {
      lose(*usable[i]);
      usable[i] = nullptr;
    } else if (loaded[i]) {
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
