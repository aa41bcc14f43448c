#include "threaded_devices.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <thread>
#include <utility>

#include "base/thread.hpp"
#include "failure.hpp"

namespace polypath::sim {
namespace {

constexpr int kWorkers = 4;
constexpr auto kLookAgainAfter = std::chrono::seconds(1);

/// A number that looks random, the same for the same value (splitmix64).
std::uint64_t scramble(std::uint64_t value) {
  value += 0x9E3779B97F4A7C15U;
  value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9U;
  value = (value ^ value >> 27) * 0x94D049BB133111EBU;
  return value ^ value >> 31;
}

/// Threads that never end must not lose their code when the program closes the library.
void keep_library() {
  Dl_info here{};
  static const char anchor = 0;
  if (::dladdr(&anchor, &here) != 0 && here.dli_fname != nullptr)
    ::dlopen(here.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
}

}  // namespace

double ThreadedDevices::clock_us() const {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin_).count();
}

void ThreadedDevices::pass(double us) {
  mutex_.unlock();
  std::this_thread::sleep_for(std::chrono::duration<double, std::micro>(us));
  mutex_.lock();
}

int ThreadedDevices::start_traffic(TrafficFlow flow, bool from_file) {
  sees_traffic_ = true;
  return traffic_.start(flow, from_file);
}

OperationPtr ThreadedDevices::issue(Operation operation) {
  start_workers();
  const auto issued = std::make_shared<Operation>(std::move(operation));
  issued->id = next_id_++;
  if (sees_traffic_) issued->issue_us = FunctionalTraffic::now_us();
  const auto is_greedy = [this](int resource) { return greedy_engines_.contains(resource); };
  if (issued->flow && issued->queue && !issued->may_complete &&
      std::ranges::any_of(issued->flow->resources, is_greedy))
    issued->may_complete = [this, copy = issued.get()] { return is_served(*copy); };
  // A copy that has its engine takes a record after it along.
  if (issued->previous && issued->previous->flow && !issued->previous->done)
    issued->is_delayable = false;
  ++open_;
  wait_for_predecessors(issued);
  if (issued->pending == 0) make_ready(issued);
  return issued;
}

void ThreadedDevices::wait_until(const std::function<bool()>& holds) {
  if (holds()) return;
  const Waiter own(waiters_, holds);
  const Clock::time_point begin = Clock::now();
  bool complained = false;
  do {
    if (open_ == 0) {
      std::fprintf(stderr, "polypath_sim: deadlock: nothing is left that could complete\n");
      throw Failure{CUDA_ERROR_UNKNOWN};
    }
    mutex_.unlock();
    own.sleeper->sleep(Clock::now() + kLookAgainAfter);
    mutex_.lock();
    if (!complained && !waiting_.empty() && Clock::now() - begin > kComplainAfter) {
      complained = true;
      std::fprintf(stderr,
                   "polypath_sim: a call still blocks while a stream waits for a value or "
                   "for a function of the program\n");
    }
  } while (!holds());
}

void ThreadedDevices::wait(const OperationPtr& operation) {
  wait_until([&operation] { return operation->done; });
}

void ThreadedDevices::start_workers() {
  if (std::exchange(has_workers_, true)) return;
  keep_library();
  for (int i = 0; i < kWorkers; ++i) make_thread([this] { work(); }).detach();
}

void ThreadedDevices::work() {
  DriverMutex::ForWorkers lock(mutex_);
  const auto self = std::make_shared<Sleeper>();
  lock.lock();
  while (true) {
    if (ready_.empty() || ready_.begin()->due > Clock::now()) {
      rest(lock, self);
      continue;
    }
    OperationPtr operation = ready_.extract(ready_.begin()).value().operation;
    if (operation->may_complete && !operation->may_complete()) {
      leaves_run(*operation);
      waiting_.insert(operation);
      last_change_ = Clock::now();
      continue;
    }
    // Another worker has to poll waiting operations and run later ones: this worker may be busy for
    // long.
    if ((!waiting_.empty() && !is_polled_) || !is_awaited()) wake_worker();
    if (operation->move) {
      lock.unlock();
      operation->move();
      lock.lock();
    }
    complete(operation);
    operation.reset();
    wake_waiters();
  }
}

/// Until there may be something to do. One of the resting workers looks whether values have come.
void ThreadedDevices::rest(DriverMutex::ForWorkers& lock, const SleeperPtr& self) {
  const bool polls = !waiting_.empty() && !is_polled_;
  Clock::time_point until = ready_.empty() ? Clock::time_point::max() : ready_.begin()->due;
  if (polls) {
    is_polled_ = true;
    const Clock::time_point now = Clock::now();
    until = std::min(until, now + poll_interval(now - last_change_));
  }
  resting_.insert(polls ? resting_.begin() : resting_.end(), {self, until});
  lock.unlock();
  self->sleep(until);
  lock.lock();
  std::erase_if(resting_, [&](const Resting& resting) { return resting.sleeper == self; });
  if (!polls) return;
  is_polled_ = false;
  poll();
}

void ThreadedDevices::wake_worker() {
  if (resting_.empty()) return;
  mutex_.wake(std::move(resting_.back().sleeper));
  resting_.pop_back();
}

bool ThreadedDevices::is_awaited() const {
  return ready_.empty() || std::ranges::any_of(resting_, [&](const Resting& resting) {
           return resting.until <= ready_.begin()->due;
         });
}

void ThreadedDevices::wake_waiters() {
  for (const Waiter* const waiter : waiters_)
    if (open_ == 0 || waiter->holds()) mutex_.wake(waiter->sleeper);
}

void ThreadedDevices::poll() {
  for (auto next = waiting_.begin(); next != waiting_.end();) {
    const OperationPtr operation = *next;
    if (!operation->may_complete()) {
      ++next;
      continue;
    }
    next = waiting_.erase(next);
    operation->may_complete = nullptr;
    make_ready(operation);
  }
}

bool ThreadedDevices::is_served(const Operation& copy) {
  for (const int resource : copy.flow->resources) {
    const auto served = served_.find(resource);
    if (served != served_.end() && served->second != copy.queue &&
        can_run_.contains(served->second))
      return false;
  }
  for (const int resource : copy.flow->resources)
    if (greedy_engines_.contains(resource)) served_[resource] = copy.queue;
  return true;
}

void ThreadedDevices::leaves_run(const Operation& operation) {
  const auto known = can_run_.find(operation.queue);
  if (known != can_run_.end() && --known->second == 0) can_run_.erase(known);
}

void ThreadedDevices::make_ready(const OperationPtr& operation) {
  if (operation->queue && !greedy_engines_.empty()) ++can_run_[operation->queue];
  take_previous(*operation);
  operation->after.clear();
  Clock::time_point due = Clock::now() + delay(operation->id);
  if (sees_traffic_ && operation->flow) {
    const auto [since_us, until_us] = traffic_.wait(*operation->flow, operation->issue_us);
    const std::chrono::duration<double, std::micro> since_epoch(until_us);
    due =
        std::max(due, Clock::time_point(std::chrono::duration_cast<Clock::duration>(since_epoch)));
    const double begin_us =
        std::chrono::duration<double, std::micro>(begin_.time_since_epoch()).count();
    delay_records(*operation, since_us - begin_us, until_us - begin_us);
  }
  ready_.insert({due, operation});
  wake_worker();
}

void ThreadedDevices::complete(const OperationPtr& operation) {
  operation->end_us = operation->timestamp_us = clock_us();
  last_change_ = Clock::now();
  // What the functions hold on to must not outlive the work.
  operation->may_complete = nullptr;
  operation->move = nullptr;
  if (const auto effect = std::exchange(operation->effect, nullptr)) effect();
  operation->done = true;
  leaves_run(*operation);
  leave_queue(*operation);
  --open_;
  for (const OperationPtr& successor : std::exchange(operation->successors, {}))
    if (--successor->pending == 0) make_ready(successor);
}

/// Most operations run at once, some a little later, a few much later than others that were ready.
ThreadedDevices::Clock::duration ThreadedDevices::delay(std::uint64_t id) const {
  if (seed_ == 0) return {};
  const std::uint64_t random = scramble(scramble(seed_) ^ id);
  const std::uint64_t kind = random % 8;
  const std::uint64_t max_us = kind < 4 ? 0 : kind < 7 ? 100 : 1000;
  return std::chrono::microseconds((random >> 8) % (max_us + 1));
}

}  // namespace polypath::sim
