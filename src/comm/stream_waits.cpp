#include "comm/stream_waits.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "driver/check.hpp"

namespace polypath {
namespace {

/// Waits that are younger are not looked at: most end by themselves, and a query costs time.
constexpr std::chrono::milliseconds kYoung{500};

/// Whether `a` is at or past `b`.
bool reaches(std::uint64_t a, std::uint64_t b) { return static_cast<std::int64_t>(a - b) >= 0; }

void raise(std::map<CUdeviceptr, std::uint64_t>& words, const AwaitedWord& word) {
  const auto [known, is_new] = words.emplace(word.address, word.value);
  if (!is_new && reaches(word.value, known->second)) known->second = word.value;
}

}  // namespace

bool is_captured(const CudaDriver& driver, CUstream stream) {
  if (driver.stream_is_capturing == nullptr) return false;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  POLYPATH_CHECK(driver, stream_is_capturing(stream, &status));
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

StreamWaits::StreamWaits(const CudaDriver& driver, CUcontext context)
    : driver_(driver), context_(context), stream_(Stream::urgent(driver, context)) {}

bool StreamWaits::done(const Event& event) const {
  return driver_.event_query(event.get()) != CUDA_ERROR_NOT_READY;
}

std::list<StreamWaits::Pending>::iterator StreamWaits::add(std::span<const AwaitedWord> words,
                                                           std::function<std::string()> what) {
  std::unique_ptr<Events> events;
  {
    const std::lock_guard lock(mutex_);
    if (pending_.size() >= sweep_at_) sweep();
    if (!free_.empty()) {
      events = std::move(free_.back());
      free_.pop_back();
    }
  }
  if (events == nullptr)
    events = std::make_unique<Events>(Event(driver_, context_, CU_EVENT_DISABLE_TIMING),
                                      Event(driver_, context_, CU_EVENT_DISABLE_TIMING));
  const std::lock_guard lock(mutex_);
  pending_.push_back({{words.begin(), words.end()}, std::move(what), std::move(events), {}, {}});
  return std::prev(pending_.end());
}

void StreamWaits::sweep() {
  for (auto next = pending_.begin(); next != pending_.end();) {
    const auto one = next++;
    if (one->issued == Clock::time_point{} || !done(one->events->after)) continue;
    free_.push_back(std::move(one->events));
    pending_.erase(one);
  }
  sweep_at_ = std::max<std::size_t>(64, 2 * pending_.size());
}

void StreamWaits::wait(std::span<const AwaitedWord> words, CUstream stream,
                       std::function<std::string()> what) {
  if (driver_.stream_wait_value64 == nullptr || driver_.stream_write_value64 == nullptr)
    throw NotSupported("the driver has no cuStreamWaitValue64");
  const auto issue = [&] {
    for (const AwaitedWord& word : words)
      POLYPATH_CHECK(
          driver_, stream_wait_value64(stream, word.address, word.value, CU_STREAM_WAIT_VALUE_GEQ));
  };
  if (is_captured(driver_, stream)) {
    {
      const std::lock_guard lock(mutex_);
      for (const AwaitedWord& word : words) raise(captured_, word);
    }
    issue();
    return;
  }
  // Known before it is issued: the call itself blocks on a full stream, which only an abort may
  // move.
  const auto pending = add(words, std::move(what));
  const auto issued = [&] {
    const std::lock_guard lock(mutex_);
    pending->issued = Clock::now();
  };
  try {
    POLYPATH_CHECK(driver_, event_record(pending->events->before.get(), stream));
    issue();
    POLYPATH_CHECK(driver_, event_record(pending->events->after.get(), stream));
  } catch (...) {
    issued();
    throw;
  }
  issued();
}

std::string StreamWaits::overdue(std::chrono::milliseconds limit) {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  for (Pending& one : pending_) {
    if (one.issued == Clock::time_point{} || now - one.issued < std::min(kYoung, limit)) continue;
    if (!done(one.events->before) || done(one.events->after)) continue;
    if (!one.begun) one.begun = now;
    if (now - *one.begun >= limit) return one.what();
  }
  return {};
}

void StreamWaits::release() noexcept {
  try {
    std::map<CUdeviceptr, std::uint64_t> words;
    {
      const std::lock_guard lock(mutex_);
      words = captured_;
      for (const Pending& one : pending_) {
        if (one.issued != Clock::time_point{} && done(one.events->after)) continue;
        for (const AwaitedWord& word : one.words) raise(words, word);
      }
    }
    if (words.empty()) return;
    const CurrentContext current(driver_, context_);
    // One round at a time, should this stream be held up itself.
    if (driver_.stream_query(stream_.get()) == CUDA_ERROR_NOT_READY) return;
    for (const auto& [address, value] : words)
      POLYPATH_CHECK(driver_, stream_write_value64(stream_.get(), address, value, 0));
    static_cast<void>(driver_.stream_query(stream_.get()));
  } catch (const std::exception& error) {
    log_warn("streams that wait are not released: {}", error.what());
  }
}

bool StreamWaits::any() {
  const std::lock_guard lock(mutex_);
  sweep();
  return !pending_.empty();
}

}  // namespace polypath
