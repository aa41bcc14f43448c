// Traffic of the measuring process itself: native copies on streams of their own that the engine
// is told of, as it is of a program's.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
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

  /// Work of this process is issued now and waited for: `what`, for messages. A copy engine may
  /// serve one stream as long as it has copies, so this work could wait as long as there is
  /// traffic. After `max_copies` of each request have ended, a warning says what is waited for, and
  /// no copy is queued until end_wait().
  void begin_wait(std::string what, std::uint64_t max_copies);
  /// The work has ended. Throws Error when the traffic had to end for it.
  void end_wait();

 private:
  struct One;

  void queue_copies();
  void copy_until_stopped();
  /// A copy of the request has ended.
  void count_ended(One& entry);
  [[nodiscard]] bool is_spent();

  Context& context_;
  OwnTrafficOptions options_;
  const ClockFunction clock_;
  std::vector<std::unique_ptr<One>> all_;
  bool is_on_ = false;
  double since_us_ = 0;
  std::atomic<bool> stops_{false};
  std::mutex mutex_;
  std::string awaited_;           // empty: nothing is waited for
  std::uint64_t max_copies_ = 0;  // while something is waited for
  bool is_spent_ = false;         // the traffic has ended for what is waited for
  std::exception_ptr failure_;
  std::jthread thread_;
};

}  // namespace polypath
