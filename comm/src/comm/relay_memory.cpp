#include "comm/relay_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "comm/memory_offer.hpp"
#include "driver/check.hpp"
#include "driver/context_resets.hpp"
#include "exec/devices.hpp"
#include "exec/relaxed_capture.hpp"

namespace polypath {
namespace {

/// Until the thread looks anew, if nothing rings before.
constexpr std::chrono::seconds kLookForNotes{1};
/// For notes of others, where ranks have no time limit.
constexpr std::chrono::hours kLongestWait{24};

}  // namespace

RelayMemory::RelayMemory(SymmetricHeap& heap, Devices& devices, std::vector<int> gpus,
                         std::uint64_t bytes, std::size_t pinned_bytes)
    : heap_(heap),
      devices_(devices),
      gpus_(std::move(gpus)),
      bytes_(bytes),
      pinned_bytes_(pinned_bytes),
      addresses_(gpus_.size()),
      imports_(gpus_.size()),
      own_(gpus_.size()) {
  if (gpus_.size() > ControlSegment::kRelayNotes)
    throw InvalidArgument(
        fmt::format("{} relays are more than {}", gpus_.size(), ControlSegment::kRelayNotes));
}

RelayMemory::~RelayMemory() { stop(); }

int RelayMemory::owner(std::size_t relay) const noexcept {
  return static_cast<int>(relay) % heap_.place_.members.size();
}

void RelayMemory::want() {
  if (is_stopped_ || state_.load(std::memory_order_acquire) != State::idle) return;
  state_ = State::taking;
  if (taking_.add([this] { take(); })) return;
  state_ = State::failed;
  for (std::size_t relay = 0; relay < gpus_.size(); ++relay)
    if (owner(relay) == heap_.place_.members.rank)
      heap_.place_.board->leave_relay_note(relay, MemoryNote{}.note());
}

bool RelayMemory::is_ready() const noexcept {
  if (state_.load(std::memory_order_acquire) != State::ready) return false;
  for (const Own& own : own_)
    if (own.context != nullptr && !own.context->is_there()) return false;
  return std::ranges::none_of(gpus_, [this](int gpu) { return devices_.has_failed(gpu); });
}

CUdeviceptr RelayMemory::address(std::size_t relay) const {
  if (state_.load(std::memory_order_acquire) != State::ready)
    throw Error("memory on idle GPUs is not there yet");
  return addresses_.at(relay);
}

void* RelayMemory::pinned() const noexcept {
  return state_.load(std::memory_order_acquire) == State::ready ? pinned_ : nullptr;
}

void RelayMemory::stop() noexcept {
  if (is_stopped_.exchange(true) || state_ == State::idle) return;
  ControlSegment::wake_all();
  taking_.wait();
}

void RelayMemory::take() noexcept {
  State next = State::failed;
  try {
    if (take_all()) next = State::ready;
  } catch (const std::exception& error) {
    log_info("rank {} does without idle GPUs: {}", heap_.place_.members.rank, error.what());
  }
  state_.store(next, std::memory_order_release);
}

bool RelayMemory::take_all() {
  const SymmetricHeap::Place& place = heap_.place_;
  const RelaxedCapture relaxed(*place.driver);  // other threads may capture
  ControlSegment& board = *place.board;
  for (std::size_t relay = 0; relay < gpus_.size(); ++relay) {
    if (owner(relay) != place.members.rank) continue;
    try {
      make(relay);
    } catch (...) {
      board.leave_relay_note(relay, MemoryNote{}.note());  // no rank waits for it any more
      throw;
    }
  }
  const auto until = std::chrono::steady_clock::now() +
                     std::min<std::chrono::milliseconds>(place.limit->load(), kLongestWait);
  for (std::size_t relay = 0; relay < gpus_.size();) {
    const std::uint32_t heard = board.bell();
    if (is_stopped_ || board.aborted() || board.departures() > 0) return false;
    const auto bytes = board.relay_note(relay);
    if (!bytes) {
      if (std::chrono::steady_clock::now() > until)
        throw Error(fmt::format("rank {} left no note of gpu{}", owner(relay), gpus_[relay]));
      board.wait_bell(heard, kLookForNotes);
      continue;
    }
    const MemoryNote note = MemoryNote::from(*bytes);
    if (note.address == 0)
      throw Error(fmt::format("rank {} has no memory on gpu{}", owner(relay), gpus_[relay]));
    open(relay, note.address, note.handle);
    ++relay;
  }
  const ContextInUse in_use(*place.context);
  if (!in_use) return false;
  const CurrentContext current(*place.driver, place.context->get());
  POLYPATH_CHECK(*place.driver,
                 mem_host_alloc(&pinned_, pinned_bytes_,
                                CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
  return true;
}

void RelayMemory::make(std::size_t relay) {
  const SymmetricHeap::Place& place = heap_.place_;
  const CudaDriver& driver = *place.driver;
  const int gpu = gpus_[relay];
  devices_.require_staging(gpu, bytes_);
  (void)devices_.context(gpu);  // which other threads know of while it is made
  Own& own = own_[relay];
  own.context = std::make_shared<const PrimaryContext>(driver, gpu);
  const ContextInUse in_use(*own.context);
  if (!in_use) throw Error(fmt::format("gpu{} was reset", gpu));
  const CurrentContext current(driver, own.context->get());
  const bool is_exported = place.members.here() < place.members.size();
  MemoryNote note;
  POLYPATH_CHECK(*devices_.driver(), mem_alloc(&own.address, exported_bytes(bytes_)));
  if (is_exported) POLYPATH_CHECK(driver, ipc_get_mem_handle(&note.handle, own.address));
  note.address = own.address;
  place.board->leave_relay_note(relay, note.note());
}

void RelayMemory::open(std::size_t relay, CUdeviceptr address, const CUipcMemHandle& handle) {
  const SymmetricHeap::Place& place = heap_.place_;
  const Members& members = place.members;
  if (members.all[static_cast<std::size_t>(owner(relay))].here) {
    devices_.enable_peer_access(members.all[static_cast<std::size_t>(members.rank)].gpu,
                                gpus_[relay]);
    addresses_[relay] = address;
    return;
  }
  const ContextInUse in_use(*place.context);
  if (!in_use) throw Error("the rank's GPU was reset");
  const CurrentContext current(*place.driver, place.context->get());
  POLYPATH_CHECK(*place.driver,
                 ipc_open_mem_handle(&imports_[relay], handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  addresses_[relay] = imports_[relay];
}

RelayMemory::Released RelayMemory::release() noexcept {
  stop();
  const SymmetricHeap::Place& place = heap_.place_;
  const CurrentContext current(*place.driver, place.context->get(), std::nothrow);
  for (CUdeviceptr& import : imports_)
    if (import != 0) POLYPATH_WARN(*place.driver, ipc_close_mem_handle(std::exchange(import, 0)));
  Released released{{}, std::exchange(pinned_, nullptr)};
  for (Own& own : own_)
    if (own.context != nullptr) released.on_relays.push_back(std::move(own));
  own_.clear();
  state_ = State::failed;
  return released;
}

}  // namespace polypath
