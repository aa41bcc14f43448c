// Traffic of the measuring process itself: native copies on streams of their own that the engine
// is told of, as it is of a program's.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "core/context.hpp"
#include "lab/pairs.hpp"

namespace polypath {

struct OwnTrafficOptions {
  std::vector<Request> copies;  ///< repeated as long as the traffic is on
  int queue = 2;                ///< copies of each request that are queued at any time
  double on_us = 0;             ///< of each period; both are 0 for traffic without pause
  double off_us = 0;
};

/// Not thread-safe.
class OwnTraffic {
 public:
  /// `context` must outlive it.
  OwnTraffic(Context& context, OwnTrafficOptions options);
  ~OwnTraffic();
  OwnTraffic(const OwnTraffic&) = delete;
  OwnTraffic& operator=(const OwnTraffic&) = delete;

  /// Returns when a copy of each request has ended.
  void start();
  /// Returns when all copies have ended. Rethrows what the copying thread threw.
  void stop();
  /// In virtual time, where no thread copies: queues again in the place of what has ended. To be
  /// called before each transfer.
  void refill();

 private:
  struct One;

  void queue_copies();
  void copy_until_stopped();

  Context& context_;
  OwnTrafficOptions options_;
  const ClockFunction clock_;
  std::vector<std::unique_ptr<One>> all_;
  bool is_on_ = false;
  double since_us_ = 0;
  std::atomic<bool> stops_{false};
  std::exception_ptr failure_;
  std::jthread thread_;
};

}  // namespace polypath
