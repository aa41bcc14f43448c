#include "core/preparer.hpp"

#include <algorithm>

#include "base/log.hpp"
#include "exec/relaxed_capture.hpp"

namespace polypath {

Preparer::Preparer(const CudaDriver& driver, RouteResources& resources)
    : driver_(driver), resources_(resources) {}

Preparer::~Preparer() {
  thread_.request_stop();
  changed_.notify_all();
}

void Preparer::request(const Route& route, int copies) {
  const std::lock_guard lock(mutex_);
  const Task task{route, copies};
  if (std::ranges::find(tasks_, task) != tasks_.end()) return;
  if (std::ranges::find(failed_, route) != failed_.end()) return;
  tasks_.push_back(task);
  if (!thread_.joinable()) thread_ = std::jthread([this](std::stop_token stop) { run(stop); });
  changed_.notify_all();
}

bool Preparer::failed(const Route& route) {
  const std::lock_guard lock(mutex_);
  return std::ranges::find(failed_, route) != failed_.end();
}

void Preparer::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return tasks_.empty(); });
}

void Preparer::run(std::stop_token stop) {
  // Allocating here must not break a capture that another thread has under way.
  const RelaxedCapture relaxed(driver_);
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [&] { return !tasks_.empty(); })) {
    const Task task = tasks_.front();
    lock.unlock();
    bool failed = false;
    try {
      resources_.prepare(task.route, task.copies);
    } catch (const std::exception& error) {
      failed = true;
      log_warn("route {} is not used: {}", to_string(task.route), error.what());
    }
    lock.lock();
    if (failed) failed_.push_back(task.route);
    tasks_.pop_front();
    changed_.notify_all();
  }
}

}  // namespace polypath
