#include "lab/own_traffic.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <utility>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/thread.hpp"
#include "base/units.hpp"
#include "driver/check.hpp"
#include "driver/context_guard.hpp"
#include "driver/resources.hpp"
#include "tune/test_buffer.hpp"

namespace polypath {
namespace {

constexpr auto kPollInterval = std::chrono::microseconds(20);
// In virtual time no thread queues copies while a transfer runs: this number of them outlasts it.
constexpr int kQueueWithoutThread = 16;

}  // namespace

struct OwnTraffic::One {
  One(Context& context, const Request& request)
      : src(context.driver(), context.node(), request.src, request.bytes),
        dst(context.driver(), context.node(), request.dst, request.bytes),
        cuda_context(context.devices().context(request.src.is_gpu() ? request.src.index
                                                                    : request.dst.index)),
        stream(context.driver(), cuda_context),
        transfer{dst.address(), src.address(), request.bytes, stream.get()},
        plan(context.planner().plan_of({request}, native_choice(request.bytes),
                                       ExecutorKind::stream)) {
    if (plan == nullptr) throw InvalidArgument("traffic of this process: no native copy fits");
  }

  TestBuffer src;
  TestBuffer dst;
  CUcontext cuda_context;
  Stream stream;
  Transfer transfer;
  std::shared_ptr<const PreparedPlan> plan;  // native
  std::deque<Event> queued;                  // the ends of copies, oldest first
  std::vector<Event> unused;
  std::uint64_t ended = 0;  // of its copies since begin_wait()
};

OwnTraffic::OwnTraffic(Context& context, OwnTrafficOptions options)
    : context_(context), options_(std::move(options)), clock_(cpu_clock(context.source())) {
  if (context.source().virtual_time && options_.off_us <= 0)
    options_.queue = std::max(options_.queue, kQueueWithoutThread);
  for (const Request& request : options_.copies)
    all_.push_back(std::make_unique<One>(context_, request));
}

OwnTraffic::~OwnTraffic() {
  stops_.store(true);
  if (thread_.joinable()) thread_.join();
  for (const auto& entry : all_)
    POLYPATH_WARN(context_.driver(), stream_synchronize(entry->stream.get()));
}

/// Forgets what has ended; queues as much again while the traffic is on.
void OwnTraffic::queue_copies() {
  const CudaDriver& driver = context_.driver();
  const double period_us = options_.on_us + options_.off_us;
  const bool is_on =
      options_.off_us <= 0 || std::fmod(clock_() - since_us_, period_us) < options_.on_us;
  ContextGuard guard(driver);
  for (const auto& entry : all_) {
    guard.use(entry->cuda_context);
    while (!entry->queued.empty() &&
           driver.event_query(entry->queued.front().get()) == CUDA_SUCCESS) {
      entry->unused.push_back(std::move(entry->queued.front()));
      entry->queued.pop_front();
      count_ended(*entry);
    }
    while (is_on && !is_spent() &&
           entry->queued.size() < static_cast<std::size_t>(options_.queue)) {
      context_.follow(std::span(&entry->transfer, 1), *entry->plan);
      if (entry->unused.empty())
        entry->unused.emplace_back(driver, entry->cuda_context, CU_EVENT_DISABLE_TIMING);
      POLYPATH_CHECK(driver, event_record(entry->unused.back().get(), entry->stream.get()));
      entry->queued.push_back(std::move(entry->unused.back()));
      entry->unused.pop_back();
    }
  }
}

void OwnTraffic::count_ended(One& entry) {
  const std::lock_guard lock(mutex_);
  ++entry.ended;
  if (awaited_.empty() || is_spent_ ||
      !std::ranges::all_of(all_, [&](const auto& each) { return each->ended >= max_copies_; }))
    return;
  is_spent_ = true;
  log_warn("{} has not ended, though {} copies of {} of this process's traffic have: it ends now",
           awaited_, max_copies_, format_bytes(entry.transfer.bytes));
}

bool OwnTraffic::is_spent() {
  const std::lock_guard lock(mutex_);
  return is_spent_;
}

void OwnTraffic::begin_wait(std::string what, std::uint64_t max_copies) {
  const std::lock_guard lock(mutex_);
  awaited_ = std::move(what);
  max_copies_ = max_copies;
  for (const auto& entry : all_) entry->ended = 0;
}

void OwnTraffic::end_wait() {
  const std::lock_guard lock(mutex_);
  const std::string what = std::exchange(awaited_, {});
  if (std::exchange(is_spent_, false))
    throw Error(
        fmt::format("{} waited for more than {} copies of {} that this process makes, until they "
                    "ended; measure next to copies of another process",
                    what, max_copies_, format_bytes(all_.front()->transfer.bytes)));
}

void OwnTraffic::copy_until_stopped() {
  while (!stops_.load()) {
    queue_copies();
    std::this_thread::sleep_for(kPollInterval);
  }
}

void OwnTraffic::start() {
  if (all_.empty() || is_on_) return;
  is_on_ = true;
  since_us_ = clock_();
  stops_.store(false);
  queue_copies();
  for (const auto& entry : all_)
    POLYPATH_CHECK(context_.driver(), event_synchronize(entry->queued.front().get()));
  if (context_.source().virtual_time) return;
  thread_ = make_thread([this] {
    try {
      copy_until_stopped();
    } catch (...) {
      failure_ = std::current_exception();
    }
  });
}

void OwnTraffic::stop() {
  if (!is_on_) return;
  is_on_ = false;
  stops_.store(true);
  if (thread_.joinable()) thread_.join();
  for (const auto& entry : all_)
    POLYPATH_CHECK(context_.driver(), stream_synchronize(entry->stream.get()));
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void OwnTraffic::refill() {
  if (is_on_ && !thread_.joinable()) queue_copies();
}

}  // namespace polypath
