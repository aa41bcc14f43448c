#include "virtual_devices.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include "failure.hpp"

namespace polypath::sim {
namespace {

// How a blocked thread waits for another one of the program, in real time.
constexpr auto kPollInterval = std::chrono::microseconds(50);
constexpr auto kComplainAfter = std::chrono::seconds(10);

}  // namespace

void VirtualDevices::catch_up() {
  timeline_.poll(clock_us_);
  timeline_.run_until(clock_us_);
}

void VirtualDevices::wait_until(const std::function<bool()>& holds) {
  const auto begin = std::chrono::steady_clock::now();
  bool complained = false;
  while (!holds()) {
    timeline_.poll(clock_us_);
    if (timeline_.step()) {
      // A blocked CPU sees the time pass.
      clock_us_ = std::max(clock_us_, timeline_.now_us());
      continue;
    }
    if (!timeline_.has_waiting()) {
      std::fprintf(stderr, "polypath_sim: deadlock: nothing is left that could complete\n");
      throw Failure{CUDA_ERROR_UNKNOWN};
    }
    if (!complained && std::chrono::steady_clock::now() - begin > kComplainAfter) {
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
