#include "nccl/communicator.hpp"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/own_thread.hpp"

namespace polypath::nccl {
namespace {

/// Looked at without a lock: a handle is at the place of its hash, or behind it with no empty place
/// between. Those that are left are taken again; who looks passes them by.
constexpr std::size_t kPlaces = 4096;
struct Place {
  std::atomic<const void*> handle{nullptr};
  std::atomic<Communicator*> its{nullptr};
  /// Those who may have found it. They are counted before they look, and it is taken away before
  /// they are asked: who asks and sees none, has it alone.
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

/// Its place, or the first that nobody has; null: all are somebody's.
Place* find_room(const void* handle) noexcept {
  if (Place* const its = find(handle)) return its;
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

bool is_own(const Communicator& its) noexcept {
  return its.owner == process.load(std::memory_order_relaxed);
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

/// Threads that let communicators go; of the process that made them, not of those that it forks.
std::atomic<int> leaving{0};
std::atomic<pid_t> leaving_of{0};

void pause_briefly() noexcept {
  constexpr timespec kPause{0, 1'000'000};
  nanosleep(&kPause, nullptr);
}

void wait_for_leaving() noexcept {
  constexpr int kMost = 1000;  // milliseconds
  if (leaving_of.load() != getpid()) return;
  for (int i = 0; i < kMost && leaving.load() > 0; ++i) pause_briefly();
}

/// The place may be another's by now: then its users count as well.
bool is_used(const Communicator& gone) noexcept {
  return gone.users != nullptr && gone.users->load() > 0;
}

void destroy(Communicator* gone) noexcept {
  while (is_used(*gone)) pause_briefly();
  if (gone->comm != nullptr) {
    // Other threads may be in captures that forbid everybody to free memory.
    const RelaxedCapture relaxed(*cuda());
    // Work of it that is under way ends, or was aborted.
    constexpr int kMost = 60'000;  // milliseconds
    for (int i = 0; i < kMost; ++i) {
      if (gone->engine->comm_destroy(gone->comm) != POLYPATH_INVALID_ARGUMENT) break;
      pause_briefly();
    }
  }
  delete gone;
  leaving.fetch_sub(1);
}

}  // namespace

InUse::InUse(const void* handle) noexcept {
  Place* const place = handle != nullptr ? find(handle) : nullptr;
  if (place == nullptr) return;
  users_ = &place->users;
  users_->fetch_add(1);
  // The place may have become another's in between. That one is there as well until `users_` are
  // none.
  Communicator* const found = place->its.load();
  if (found != nullptr && found->handle == handle && is_own(*found)) its_ = found;
}
InUse::InUse(InUse&& other) noexcept
    : users_(std::exchange(other.users_, nullptr)), its_(std::exchange(other.its_, nullptr)) {}
InUse& InUse::operator=(InUse&& other) noexcept {
  std::swap(users_, other.users_);
  std::swap(its_, other.its_);
  return *this;
}
InUse::~InUse() {
  if (users_ != nullptr) users_->fetch_sub(1);
}

bool has_room() noexcept {
  constexpr std::size_t kMost = kPlaces - kPlaces / 4;
  const std::lock_guard lock(writing);
  return used < kMost;
}

bool add(Communicator* made) noexcept {
  const std::lock_guard lock(writing);
  Place* const place = find_room(made->handle);
  if (place == nullptr) return false;
  if (place->handle.load(std::memory_order_relaxed) != made->handle) ++used;
  know_process();
  made->owner = process.load();
  made->users = &place->users;
  place->its.store(made, std::memory_order_release);
  place->handle.store(made->handle, std::memory_order_release);
  return true;
}

Communicator* remove(const void* handle) noexcept {
  if (handle == nullptr) return nullptr;
  const std::lock_guard lock(writing);
  Place* const place = find(handle);
  if (place == nullptr) return nullptr;
  Communicator* const gone = place->its.exchange(nullptr);
  --used;
  leave(*place);
  // That of a parent goes with this process, and its ranks hear nothing of it.
  return gone != nullptr && is_own(*gone) ? gone : nullptr;
}

void let_go(Communicator* gone) noexcept {
  if (gone == nullptr) return;
  if (gone->comm == nullptr && !is_used(*gone)) {
    delete gone;
    return;
  }
  // The next communicator of the program may be made before the background comes to this one.
  if (gone->comm != nullptr && !is_used(*gone)) {
    const RelaxedCapture relaxed(*cuda());
    gone->engine->comm_retire(gone->comm);
  }
  static std::once_flag once;
  std::call_once(once, [] { std::atexit(&wait_for_leaving); });
  if (leaving_of.exchange(getpid()) != getpid()) leaving.store(0);
  leaving.fetch_add(1);
  try {
    own_thread([gone] { destroy(gone); }).detach();
  } catch (const std::system_error&) {
    destroy(gone);  // no thread can be made
  }
}

}  // namespace polypath::nccl
