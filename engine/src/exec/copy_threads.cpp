#include "exec/copy_threads.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <system_error>
#include <utility>

#include "base/futex.hpp"
#include "base/log.hpp"
#include "base/thread.hpp"

namespace polypath {
namespace {

constexpr int kNoSeat = -1;
constexpr int kLeft = -2;
/// A thread looks for more work that long before it sleeps: copies often follow each other, and on
/// a virtual machine it takes some 50 us to wake.
constexpr std::chrono::microseconds kLookForWork{100};
/// A caller waits that long for the threads' last chunks before it sleeps.
constexpr std::chrono::microseconds kLookForEnd{400};
/// What holds the mutex takes less, unless it has lost its CPU.
constexpr std::chrono::microseconds kLookForMutex{50};

/// Whether `is_true` became so within the time.
template <typename Condition>
bool spin(std::chrono::microseconds time, Condition is_true) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (!is_true()) {
    if (std::chrono::steady_clock::now() >= end) return false;
    pause_cpu();
  }
  return true;
}

}  // namespace

CopyThreads::CopyThreads(int count)
    : count_(count), process_(getpid()), last_(static_cast<std::size_t>(count)) {}

CopyThreads::~CopyThreads() {
  if (threads_ == nullptr) return;
  if (getpid() != process_) {
    static_cast<void>(threads_.release());  // there are no such threads here
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
    ++arrivals_;
  }
  futex_wake(arrivals_, FutexScope::process);
}

bool CopyThreads::is_running() const noexcept {
  return is_running_.load(std::memory_order_acquire) && getpid() == process_;
}

bool CopyThreads::start() noexcept {
  if (is_running()) return true;
  if (getpid() != process_) return false;
  const std::lock_guard lock(mutex_);
  if (threads_ != nullptr) return is_running_;
  try {
    threads_ = std::make_unique<std::vector<std::jthread>>();
    threads_->reserve(static_cast<std::size_t>(count_));
    for (int t = 0; t < count_; ++t) threads_->push_back(make_thread([this, t] { work(t); }));
  } catch (const std::exception& error) {
    // The threads that run do the work of all.
    log_info("{} of {} copy threads: {}", threads_ != nullptr ? threads_->size() : 0, count_,
             error.what());
  }
  is_running_ = threads_ != nullptr && !threads_->empty();
  return is_running_;
}

CopyThreads::Entry* CopyThreads::next(int thread) {
  const auto t = static_cast<std::size_t>(thread);
  const auto serves = [&](const Entry* entry) {
    const int seat = entry->seat_of[t];
    return seat >= 0 || (seat == kNoSeat && !entry->is_closed && entry->taken < entry->seats);
  };
  // The one after the last, in turn.
  const auto last = std::ranges::find(entries_, last_[t]);
  const auto after = last == entries_.end() ? entries_.begin() : std::next(last);
  const auto later = std::find_if(after, entries_.end(), serves);
  if (later != entries_.end()) return *later;
  const auto earlier = std::find_if(entries_.begin(), after, serves);
  return earlier == after ? nullptr : *earlier;
}

std::unique_lock<std::mutex> CopyThreads::lock_soon() {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) spin(kLookForMutex, [&] { return lock.try_lock(); });
  if (!lock) lock.lock();
  return lock;
}

void CopyThreads::work(int thread) {
  const auto t = static_cast<std::size_t>(thread);
  std::unique_lock lock = lock_soon();
  while (!is_stopped_) {
    Entry* const entry = next(thread);
    last_[t] = entry;
    const std::uint32_t seen = arrivals_;
    if (entry == nullptr) {
      lock.unlock();
      const auto has_changed = [&] { return arrivals_.load(std::memory_order_relaxed) != seen; };
      if (!spin(kLookForWork, has_changed)) futex_wait(arrivals_, seen, FutexScope::process);
      lock = lock_soon();
      continue;
    }
    if (entry->seat_of[t] == kNoSeat) entry->seat_of[t] = entry->taken++;
    const int seat = entry->seat_of[t];
    const bool is_alone = entries_.size() == 1;
    lock.unlock();
    bool is_more = entry->work->step(thread, seat);
    while (is_more && is_alone && arrivals_.load(std::memory_order_relaxed) == seen)
      is_more = entry->work->step(thread, seat);
    lock = lock_soon();
    if (is_more) continue;
    entry->seat_of[t] = kLeft;
    leave(*entry);
  }
}

void CopyThreads::leave(Entry& entry) {
  entry.is_closed = true;
  ++entry.left;
  if (!entry.has_ended()) return;
  entry.is_over.store(true, std::memory_order_relaxed);
  entry.ended.notify_one();
}

bool CopyThreads::run(SharedWork& work, int seats) {
  if (!start()) return false;
  Entry entry;
  entry.work = &work;
  entry.seats = std::clamp(seats, 1, count_);
  entry.seat_of.assign(static_cast<std::size_t>(count_), kNoSeat);
  std::unique_lock lock = lock_soon();
  entries_.push_back(&entry);
  ++arrivals_;
  const bool takes_part = !std::exchange(has_caller_, true);
  if (takes_part) ++entry.taken;
  const int free_seats = entry.seats - entry.taken;
  lock.unlock();
  if (free_seats > 0) futex_wake(arrivals_, FutexScope::process, free_seats);
  if (takes_part) {
    constexpr int kFirstSeat = 0;
    while (work.step(count_, kFirstSeat)) continue;
    lock = lock_soon();
    has_caller_ = false;
    leave(entry);
    lock.unlock();
    spin(kLookForEnd, [&] { return entry.is_over.load(std::memory_order_relaxed); });
  }
  // With the mutex: the thread that ends the work has left the entry.
  lock.lock();
  entry.ended.wait(lock, [&] { return entry.has_ended(); });
  entries_.remove(&entry);
  return true;
}

}  // namespace polypath
