#include "virtual_devices.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include "failure.hpp"

namespace polypath::sim {

void VirtualDevices::catch_up() {
  timeline_.poll(clock_us_);
  // The program may have written what kernels wait for.
  if (Companion* const companion = timeline_.companion()) companion->look(timeline_.now_us());
  timeline_.run_until(clock_us_);
}

void VirtualDevices::wait_until(const std::function<bool()>& holds) {
  auto stuck_since = std::chrono::steady_clock::now();
  double stuck_at_us = timeline_.now_us();
  bool complained = false;
  while (!holds()) {
    timeline_.poll(clock_us_);
    Companion* const companion = timeline_.companion();
    const auto now = std::chrono::steady_clock::now();
    if (timeline_.step() || (companion != nullptr && companion->look(timeline_.now_us()))) {
      // A blocked CPU sees the time pass.
      clock_us_ = std::max(clock_us_, timeline_.now_us());
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
    if (companion != nullptr && now - stuck_since > patience_)
      companion->give_up(timeline_.now_us());
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
}

void VirtualDevices::wait(const OperationPtr& operation) {
  wait_until([&operation] { return operation->done; });
  clock_us_ = std::max(clock_us_, operation->end_us);
}

}  // namespace polypath::sim
