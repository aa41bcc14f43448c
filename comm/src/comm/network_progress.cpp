#include "comm/network_progress.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <utility>

#include "base/error.hpp"
#include "base/thread.hpp"
#include "driver/check.hpp"

namespace polypath {
namespace {

/// In cache lines of their own.
constexpr std::size_t kWordBytes = 128;
/// Between checks of work that holds no stream up.
constexpr std::chrono::milliseconds kWatchPeriod{1};

}  // namespace

NetworkProgress::NetworkProgress(Communicator& local, int rank, bool progress_in_caller)
    : local_(local),
      rank_(rank),
      by_caller_(progress_in_caller),
      words_(local.driver(), local.primary_context(), kMaxExchanges * kWordBytes) {
  for (std::size_t i = 0; i < kMaxExchanges; ++i)
    new (words_.get() + i * kWordBytes) std::uint64_t{0};
  if (!by_caller_) thread_ = make_thread([this](const std::stop_token& stop) { run(stop); });
}

NetworkProgress::~NetworkProgress() { stop(); }

void NetworkProgress::stop() noexcept {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
}

Event NetworkProgress::take_event() {
  {
    const std::lock_guard lock(mutex_);
    if (!events_.empty()) {
      Event event = std::move(events_.back());
      events_.pop_back();
      return event;
    }
  }
  return {local_.driver(), local_.context(), CU_EVENT_DISABLE_TIMING};
}

void NetworkProgress::hold_until(CUstream stream, std::function<bool()> advance) {
  std::vector<Event> events;
  events.push_back(take_event());
  add(stream, std::move(events), std::move(advance), nullptr);
}

void NetworkProgress::watch(CUstream stream, Event began, std::function<void()> hurry) {
  std::vector<Event> events;
  events.push_back(take_event());
  events.push_back(std::move(began));
  add(stream, std::move(events), nullptr, std::move(hurry));
}

void NetworkProgress::add(CUstream stream, std::vector<Event> events, std::function<bool()> advance,
                          std::function<void()> hurry) {
  POLYPATH_CHECK(local_.driver(), event_record(events.front().get(), stream));
  const std::uint64_t number = number_ + 1;
  std::uint64_t* word = nullptr;
  if (advance) {
    word = reinterpret_cast<std::uint64_t*>(words_.get() + number % kMaxExchanges * kWordBytes);
    local_.wait_network(word, number, stream);
  }
  number_ = number;
  const std::lock_guard lock(mutex_);
  Waiting& waiting = waiting_.emplace_back();
  waiting.number = number;
  waiting.events = std::move(events);
  waiting.word = word;
  waiting.advance = std::move(advance);
  waiting.hurry = std::move(hurry);
  came_.notify_one();
}

bool NetworkProgress::has_passed(const Event& event) const {
  if (local_.driver().event_query(event.get()) == CUDA_ERROR_NOT_READY) return false;
  POLYPATH_CHECK(local_.driver(), event_query(event.get()));
  return true;
}

bool NetworkProgress::advance(Waiting& waiting) {
  const auto now = std::chrono::steady_clock::now();
  constexpr std::chrono::steady_clock::time_point kNever{};
  if (!waiting.has_come && has_passed(waiting.events.front())) {
    waiting.has_come = true;
    // Data of a kernel that timed out goes no further.
    local_.check();
    waiting.since = now;
  } else if (waiting.since == kNever && waiting.events.size() > 1 &&
             has_passed(waiting.events.back())) {
    waiting.since = now;
  }
  if (waiting.has_come && waiting.word == nullptr) return true;
  if (waiting.has_come && waiting.advance()) {
    std::atomic_ref(*waiting.word).store(waiting.number, std::memory_order_release);
    return true;
  }
  if (waiting.since != kNever && now - waiting.since > local_.time_limit())
    throw CommunicatorError(fmt::format("exchange {} with other nodes did not end within {} ms",
                                        waiting.number, local_.time_limit().count()));
  return false;
}

void NetworkProgress::advance_all() noexcept {
  try {
    local_.check();
    for (auto next = waiting_.begin(); next != waiting_.end();) {
      if (advance(*next)) {
        for (Event& event : next->events) events_.push_back(std::move(event));
        next = waiting_.erase(next);
      } else {
        ++next;
      }
    }
  } catch (const std::exception& error) {
    // The first reason is kept; streams go on after it.
    local_.abort(fmt::format("rank {}: {}", rank_, error.what()));
    for (const Waiting& waiting : waiting_)
      if (waiting.hurry) waiting.hurry();
    // Events of a context that was reset are not named to the driver.
    if (local_.is_lost()) static_cast<void>(new std::list<Waiting>(std::move(waiting_)));
    waiting_.clear();
  }
}

bool NetworkProgress::progress() noexcept {
  if (!by_caller_) return false;
  const std::lock_guard lock(mutex_);
  if (!waiting_.empty()) advance_all();
  return true;
}

void NetworkProgress::run(const std::stop_token& stop) {
  const CurrentContext current(local_.driver(), local_.context(), std::nothrow);
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    came_.wait(lock, stop, [&] { return !waiting_.empty(); });
    if (!waiting_.empty()) advance_all();
    const bool holds_streams =
        std::ranges::any_of(waiting_, [](const Waiting& each) { return each.word != nullptr; });
    lock.unlock();
    if (holds_streams)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(kWatchPeriod);
    lock.lock();
  }
}

}  // namespace polypath
