#include "base/task_queue.hpp"

#include <exception>
#include <system_error>
#include <utility>

#include "base/log.hpp"
#include "base/thread.hpp"

namespace polypath {

TaskQueue::~TaskQueue() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
}

bool TaskQueue::add(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  if (tasks_.size() >= max_waiting_) return false;
  try {
    if (!thread_.joinable())
      thread_ = make_thread([this](const std::stop_token& stop) { run(stop); });
  } catch (const std::system_error& error) {
    if (!std::exchange(has_told_, true))
      log_warn("nothing is done in the background: {}", error.what());
    return false;
  }
  tasks_.push_back(std::move(task));
  changed_.notify_all();
  return true;
}

void TaskQueue::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return tasks_.empty(); });
}

void TaskQueue::run(std::stop_token stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [&] { return !tasks_.empty(); }) && !stop.stop_requested()) {
    const std::function<void()> task = tasks_.front();
    lock.unlock();
    try {
      task();
    } catch (const std::exception& error) {
      log_warn("what was to be done meanwhile failed: {}", error.what());
    }
    lock.lock();
    tasks_.pop_front();
    changed_.notify_all();
  }
}

}  // namespace polypath
