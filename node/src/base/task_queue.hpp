// One thread that runs tasks in turn, so that no other thread has to wait for them.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>

namespace polypath {

/// Thread-safe. The thread starts with the first task.
class TaskQueue {
 public:
  explicit TaskQueue(std::size_t max_waiting) : max_waiting_(max_waiting) {}
  /// Ends the task at hand; tasks that wait are dropped.
  ~TaskQueue();
  TaskQueue(const TaskQueue&) = delete;
  TaskQueue& operator=(const TaskQueue&) = delete;

  /// Queues `task` after earlier ones. False when the queue is full and the task is dropped. What a
  /// task throws is logged.
  bool add(std::function<void()> task);
  /// Waits until nothing is left to do.
  void wait();

 private:
  void run(std::stop_token stop);

  const std::size_t max_waiting_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<std::function<void()>> tasks_;  // the first one is under way
  bool has_told_ = false;                    ///< that there is no thread
  std::jthread thread_;
};

}  // namespace polypath
