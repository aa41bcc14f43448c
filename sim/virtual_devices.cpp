#include "virtual_devices.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include "failure.hpp"

namespace polypath::sim {

VirtualDevices::Clock& VirtualDevices::clock_of_thread() {
  thread_local Clock clock;
  return clock;
}

double VirtualDevices::own_clock_us() const {
  const Clock& clock = clock_of_thread();
  return std::max(clock.of == this ? clock.us : latest_us_, timeline_.now_us());
}

void VirtualDevices::set_clock(double us) {
  clock_of_thread() = {this, us};
  latest_us_ = std::max(latest_us_, us);
  const auto own = issuing_.find(std::this_thread::get_id());
  if (own != issuing_.end()) own->second = us;
}

void VirtualDevices::set_issuing(bool issuing) {
  if (!issuing) {
    issuing_.erase(std::this_thread::get_id());
    return;
  }
  issuing_.emplace(std::this_thread::get_id(), 0);
  set_clock(std::max(latest_us_, own_clock_us()));
}

double VirtualDevices::horizon_us() const {
  double horizon = Timeline::kNever;
  for (const auto& [thread, us] : issuing_)
    if (thread != std::this_thread::get_id()) horizon = std::min(horizon, us);
  return horizon;
}

void VirtualDevices::catch_up() {
  const double clock_us = own_clock_us();
  timeline_.poll(clock_us);
  // The program may have written what kernels wait for.
  if (Companion* const companion = timeline_.companion()) companion->look(timeline_.now_us());
  timeline_.run_until(std::min(clock_us, horizon_us()));
}

void VirtualDevices::wait_until(const std::function<bool()>& holds) {
  auto stuck_since = std::chrono::steady_clock::now();
  double stuck_at_us = timeline_.now_us();
  bool complained = false;
  // Whoever waits issues nothing.
  const auto own = issuing_.find(std::this_thread::get_id());
  const bool issues = own != issuing_.end();
  if (issues) issuing_.erase(own);
  while (!holds()) {
    // Where this thread keeps others out, none of them issues anything.
    if (!mutex_.is_alone() && timeline_.next_us() > horizon_us()) {
      stuck_since = std::chrono::steady_clock::now();
      mutex_.unlock();
      std::this_thread::sleep_for(kPollInterval);
      mutex_.lock();
      continue;
    }
    timeline_.poll(own_clock_us());
    Companion* const companion = timeline_.companion();
    const auto now = std::chrono::steady_clock::now();
    if (timeline_.step() || (companion != nullptr && companion->look(timeline_.now_us()))) {
      continue;
    }
    if (!timeline_.has_waiting()) {
      std::fprintf(stderr, "polypath_sim: deadlock: nothing is left that could complete\n");
      throw Failure{CUDA_ERROR_UNKNOWN};
    }
    if (timeline_.now_us() != stuck_at_us) {  // by this thread, or by another one that waits
      stuck_at_us = timeline_.now_us();
      stuck_since = now;
    }
    if (companion != nullptr && now - stuck_since > patience_) {
      companion->give_up(timeline_.now_us());
      // Kernels that gave up wait for the program to take note.
      stuck_since = now - patience_ + std::min<decltype(now - now)>(patience_, kTakesNote);
    }
    if (!complained && now - stuck_since > kComplainAfter) {
      complained = true;
      std::fprintf(stderr,
                   "polypath_sim: a call still blocks on a stream that waits for a value or "
                   "for a function of the program\n");
    }
    mutex_.unlock();
    std::this_thread::sleep_for(kPollInterval);
    mutex_.lock();
  }
  if (issues) issuing_.emplace(std::this_thread::get_id(), own_clock_us());
}

void VirtualDevices::wait(const OperationPtr& operation) {
  wait_until([&operation] { return operation->done; });
  set_clock(std::max(own_clock_us(), operation->end_us));
}

}  // namespace polypath::sim
