// Looks after runs that may not end: says how far one has come, and ends it with that as the
// reason.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace messaging_bench {

/// From a thread of its own, which calls all functions that it is given. Calls: by one other
/// thread.
class RunWatch {
 public:
  struct Limits {
    std::chrono::milliseconds word{10'000};  ///< between words about one run
    std::chrono::milliseconds end{60'000};   ///< for a run to end; the same again after `end`
  };
  struct Calls {
    std::function<std::string()> state;            ///< how far it has come; may be empty
    std::function<void(const std::string&)> say;   ///< of a run that lasts
    std::function<void(const std::string&)> end;   ///< of one that has to end now, and why
    std::function<void(const std::string&)> kill;  ///< of one that did not end when told to
  };

  RunWatch(std::string line, const Limits& limits, Calls calls)
      : line_(std::move(line)),
        limits_(limits),
        calls_(std::move(calls)),
        thread_([this] { look(); }) {}
  /// Returns when no function is called any more.
  ~RunWatch() {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  RunWatch(const RunWatch&) = delete;
  RunWatch& operator=(const RunWatch&) = delete;

  /// The run before has ended, and the next one begins.
  void next_run() {
    const std::lock_guard lock(mutex_);
    ++run_;
    began_ = Clock::now();
    changed_.notify_one();
  }

 private:
  using Clock = std::chrono::steady_clock;

  void look() {
    std::unique_lock lock(mutex_);
    unsigned run = run_;
    auto due = limits_.word;
    bool was_told = false;
    while (!is_over_) {
      if (run != run_) {
        run = run_;
        due = limits_.word;
        was_told = false;
      }
      const auto at = std::min(due, was_told ? 2 * limits_.end : limits_.end);
      if (run == 0) {
        changed_.wait(lock, [&] { return is_over_ || run != run_; });
        continue;
      }
      if (changed_.wait_until(lock, began_ + at, [&] { return is_over_ || run != run_; })) continue;
      const Clock::duration lasted = Clock::now() - began_;
      due += limits_.word;
      lock.unlock();
      const std::string text = about(run, lasted);
      if (lasted >= limits_.end && !was_told) {
        was_told = true;
        calls_.end(text);
      } else if (lasted >= 2 * limits_.end) {
        calls_.kill(text);
      } else {
        calls_.say(text);
      }
      lock.lock();
    }
  }
  [[nodiscard]] std::string about(unsigned run, Clock::duration lasted) const {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(lasted).count();
    std::string text = line_ + ": run " + std::to_string(run) + " has not ended after " +
                       std::to_string(seconds) + " s";
    if (calls_.state) text += ": " + calls_.state();
    return text;
  }

  const std::string line_;
  const Limits limits_;
  const Calls calls_;
  std::mutex mutex_;
  std::condition_variable changed_;
  unsigned run_ = 0;  ///< 0: none has begun
  Clock::time_point began_{};
  bool is_over_ = false;
  std::thread thread_;  ///< begins when all is there
};

}  // namespace messaging_bench
