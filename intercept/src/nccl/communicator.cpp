#include "nccl/communicator.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/thread.hpp"
#include "gate/process.hpp"

namespace polypath::nccl {
namespace {

/// Looked at without a lock: a handle is at the place of its hash, or after it with no empty place
/// between. Places that are left are used again; readers pass them by.
constexpr std::size_t kPlaces = 4096;
struct Place {
  std::atomic<const void*> handle{nullptr};
  std::atomic<Communicator*> communicator{nullptr};
  /// The threads that may have found it. A thread is counted before it looks, and the entry is
  /// removed before the count is read: a thread that removes it and reads 0 has it alone.
  std::atomic<int> users{0};
};
constinit std::array<Place, kPlaces> places{};
constinit std::mutex writing;
constinit std::size_t used = 0;
/// The handle of a place that was left: no communicator has this address.
constinit const char left = 0;

std::size_t place_of(const void* handle) noexcept {
  return (reinterpret_cast<std::uintptr_t>(handle) * 0x9E3779B97F4A7C15U) >> 52U;
}
static_assert(kPlaces == 1U << 12U);

/// The place of the handle; null: it has none.
Place* find(const void* handle) noexcept {
  const std::size_t first = place_of(handle);
  for (std::size_t i = 0; i < kPlaces; ++i) {
    Place& place = places[(first + i) % kPlaces];
    const void* const known = place.handle.load(std::memory_order_acquire);
    if (known == handle) return &place;
    if (known == nullptr) return nullptr;
  }
  return nullptr;
}

/// Its place, or the first that is free; null: all are in use.
Place* find_room(const void* handle) noexcept {
  if (Place* const existing = find(handle)) return existing;
  const std::size_t first = place_of(handle);
  for (std::size_t i = 0; i < kPlaces; ++i) {
    Place& place = places[(first + i) % kPlaces];
    const void* const known = place.handle.load(std::memory_order_relaxed);
    if (known == nullptr || known == &left) return &place;
  }
  return nullptr;
}

/// Places that were left, and that no search has to pass by, are empty again.
void leave(Place& place) noexcept {
  place.handle.store(&left, std::memory_order_release);
  std::size_t at = static_cast<std::size_t>(&place - places.data());
  if (places[(at + 1) % kPlaces].handle.load(std::memory_order_relaxed) != nullptr) return;
  for (; places[at].handle.load(std::memory_order_relaxed) == &left;
       at = (at + kPlaces - 1) % kPlaces)
    places[at].handle.store(nullptr, std::memory_order_release);
}

/// This process: its children have the table too, and what is in it is not theirs. Noted in each,
/// since to ask the system costs more than to look a handle up.
std::atomic<pid_t> process{0};

bool is_own(const Communicator& state) noexcept {
  return state.owner == process.load(std::memory_order_relaxed);
}

/// With `writing` locked.
void know_process() noexcept {
  if (process.load() != 0) return;
  process.store(getpid());
  pthread_atfork([] { writing.lock(); }, [] { writing.unlock(); },
                 [] {
                   process.store(getpid());
                   writing.unlock();
                 });
}

/// Threads that let communicators go and call the driver; of the process that made them, not of
/// those that it forks.
std::atomic<int> in_driver{0};
std::atomic<bool> is_ending{false};
std::atomic<pid_t> leaving_of{0};

void pause_for(long milliseconds) noexcept { gate::pause_us(1000 * milliseconds); }

/// While it lives the process does not end, for a second at most.
class DriverCall {
 public:
  DriverCall() noexcept { in_driver.fetch_add(1); }
  ~DriverCall() { in_driver.fetch_sub(1); }
  DriverCall(const DriverCall&) = delete;
  DriverCall& operator=(const DriverCall&) = delete;
  /// False: it ends already, and the driver may not be called.
  explicit operator bool() const noexcept { return !is_ending.load(); }
};

/// What waits for other ranks goes with the process; libpolypath tells them.
void wait_for_driver_calls() noexcept {
  constexpr int kMaxEntries = 1000;  // milliseconds
  if (leaving_of.load() != getpid()) return;
  is_ending.store(true);
  for (int i = 0; i < kMaxEntries && in_driver.load() > 0; ++i) pause_for(1);
}

/// The place may be another's by now: then its users count as well.
bool is_used(const Communicator& gone) noexcept {
  return gone.users != nullptr && gone.users->load() > 0;
}

/// Not one that was reset since.
bool is_there(const Communicator& gone) noexcept {
  unsigned long long id = 0;
  if (gone.context_id == 0) return true;
  const CUresult result = driver::ctx_get_id(gone.context, &id);
  if (result == CUDA_SUCCESS) return id == gone.context_id;
  return result != CUDA_ERROR_INVALID_CONTEXT && result != CUDA_ERROR_CONTEXT_IS_DESTROYED &&
         result != CUDA_ERROR_DEINITIALIZED;
}

/// What it has of the driver itself.
void free_own(Communicator& gone) noexcept {
  const DriverCall call;
  if (call && is_there(gone))
    gone.order.end();
  else
    gone.order.forget();
}

/// Work of it that is under way ends, or was aborted; streams of the program may be held as long as
/// it likes.
void wait_for_work(const Communicator& gone) noexcept {
  constexpr long kLongest = 20;  // milliseconds
  for (long pause = 1;
       !is_ending && gone.engine->comm_release_sms(gone.comm) == POLYPATH_INVALID_ARGUMENT;
       pause = std::min(2 * pause, kLongest))
    pause_for(pause);
}

void destroy(Communicator* gone) noexcept {
  while (is_used(*gone)) pause_for(1);
  if (gone->comm != nullptr) {
    // Other threads may be in captures that forbid all threads to free memory.
    const RelaxedCapture relaxed;
    wait_for_work(*gone);
    free_own(*gone);
    while (!is_ending && gone->engine->comm_destroy(gone->comm) == POLYPATH_INVALID_ARGUMENT)
      pause_for(1);
  }
  // It may have the last use of a context that a reset of a GPU retired.
  if (const DriverCall call; call) delete gone;
}

}  // namespace

CommRef::CommRef(const void* handle) noexcept {
  Place* const place = handle != nullptr ? find(handle) : nullptr;
  if (place == nullptr) return;
  users_ = &place->users;
  users_->fetch_add(1);
  // The place may have become another's in between. That one is there as well until `users_` are
  // none.
  Communicator* const communicator = place->communicator.load();
  if (communicator != nullptr && communicator->handle == handle && is_own(*communicator))
    communicator_ = communicator;
}
CommRef::CommRef(CommRef&& other) noexcept
    : users_(std::exchange(other.users_, nullptr)),
      communicator_(std::exchange(other.communicator_, nullptr)) {}
CommRef& CommRef::operator=(CommRef&& other) noexcept {
  std::swap(users_, other.users_);
  std::swap(communicator_, other.communicator_);
  return *this;
}
CommRef::~CommRef() {
  if (users_ != nullptr) users_->fetch_sub(1);
}

bool has_room() noexcept {
  constexpr std::size_t kMaxEntries = kPlaces - kPlaces / 4;
  const std::lock_guard lock(writing);
  return used < kMaxEntries;
}

bool add(Communicator* communicator) noexcept {
  Communicator* before = nullptr;
  {
    const std::lock_guard lock(writing);
    Place* const place = find_room(communicator->handle);
    if (place == nullptr) return false;
    if (place->handle.load(std::memory_order_relaxed) != communicator->handle) ++used;
    know_process();
    communicator->owner = process.load();
    communicator->users = &place->users;
    before = place->communicator.exchange(communicator);
    place->handle.store(communicator->handle, std::memory_order_release);
  }
  // NCCL has given its address to another one: it was destroyed past this library.
  if (before != nullptr && is_own(*before)) destroy_in_background(before);
  return true;
}

Communicator* remove(const void* handle) noexcept {
  if (handle == nullptr) return nullptr;
  const std::lock_guard lock(writing);
  Place* const place = find(handle);
  if (place == nullptr) return nullptr;
  Communicator* const gone = place->communicator.exchange(nullptr);
  --used;
  leave(*place);
  // That of a parent goes with this process, and its ranks hear nothing of it.
  return gone != nullptr && is_own(*gone) ? gone : nullptr;
}

void destroy_in_background(Communicator* gone) noexcept {
  if (gone == nullptr) return;
  if (gone->comm == nullptr && !is_used(*gone)) {
    delete gone;
    return;
  }
  if (!is_used(*gone)) {
    const RelaxedCapture relaxed;
    // The program may reset the GPU before the background comes to this one, or has done so.
    if (is_there(*gone))
      gone->order.end();
    else
      gone->order.forget();
    // It may make its next communicator before that.
    gone->engine->comm_release_sms(gone->comm);
  }
  static std::once_flag once;
  std::call_once(once, [] { std::atexit(&wait_for_driver_calls); });
  leaving_of.store(getpid());
  try {
    make_thread([gone] { destroy(gone); }).detach();
  } catch (const std::system_error&) {
    destroy(gone);  // no thread can be made
  }
}

void wait_for_aborted_calls(const Communicator& gone) noexcept {
  if (gone.comm == nullptr) return;
  constexpr std::chrono::seconds kMaxWait{5};
  constexpr std::chrono::seconds kMaxUse{1};
  const auto begin = std::chrono::steady_clock::now();
  const auto is_before = [&](auto limit) {
    return std::chrono::steady_clock::now() - begin < limit;
  };
  const RelaxedCapture relaxed;
  // Another thread may be in a call, or have a group open that holds some.
  while (is_used(gone) && is_before(kMaxUse)) gate::pause_us(50);
  // Copies to the program's buffers may follow polypath's own part of a call.
  const auto is_under_way = [&] {
    return gone.engine->comm_release_sms(gone.comm) == POLYPATH_INVALID_ARGUMENT ||
           (is_there(gone) && !gone.order.is_idle());
  };
  while (!is_used(gone) && is_before(kMaxWait) && is_under_way()) gate::pause_us(50);
}

}  // namespace polypath::nccl
