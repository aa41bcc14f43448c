#include "core/preparer.hpp"

#include <algorithm>
#include <system_error>

#include "base/log.hpp"
#include "base/own_thread.hpp"
#include "exec/relaxed_capture.hpp"
#include "exec/staging_policy.hpp"

namespace polypath {

Preparer::Preparer(const CudaDriver& driver, RouteResources& resources, ImportedMemories& imports)
    : driver_(driver), resources_(resources), imports_(imports) {}

Preparer::~Preparer() { stop(); }

void Preparer::stop() noexcept {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  if (thread_.joinable()) thread_.request_stop();
  changed_.notify_all();
}

void Preparer::add(Task task) {
  if (stopped_ || std::ranges::find(tasks_, task) != tasks_.end()) return;
  try {
    if (!thread_.joinable()) thread_ = own_thread([this](std::stop_token stop) { run(stop); });
  } catch (const std::system_error& error) {
    log_warn("no route is prepared: {}", error.what());
    stopped_ = true;
    return;
  }
  tasks_.push_back(std::move(task));
  changed_.notify_all();
}

std::vector<Preparer::Failure>::iterator Preparer::failure_of(const Route& route) {
  return std::ranges::find(failures_, route, &Failure::route);
}

void Preparer::remember(const Route& route, bool done) {
  const auto known = failure_of(route);
  if (done) {
    if (known != failures_.end()) failures_.erase(known);
  } else if (known == failures_.end()) {
    failures_.push_back({route, {}});
  } else {
    known->retry.failed();
  }
}

void Preparer::request(const Route& route, int copies) {
  const std::lock_guard lock(mutex_);
  if (const auto known = failure_of(route); known != failures_.end() && !known->retry.due()) return;
  add(Widen{route, copies});
}

void Preparer::request(std::shared_ptr<ImportedMemory> memory, int gpu) {
  const std::lock_guard lock(mutex_);
  if (memory->may_import(gpu)) add(Import{std::move(memory), gpu});
}

bool Preparer::failed(const Route& route) {
  const std::lock_guard lock(mutex_);
  return failure_of(route) != failures_.end();
}

void Preparer::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return tasks_.empty() || stopped_; });
}

bool Preparer::carry_out(const Task& task) {
  const auto* const widen = std::get_if<Widen>(&task);
  try {
    if (widen != nullptr) {
      resources_.prepare(widen->route, widen->copies);
    } else {
      const auto& [memory, gpu] = std::get<Import>(task);
      imports_.import_into(*memory, gpu);
    }
    return true;
  } catch (const std::exception& error) {
    if (widen != nullptr) {
      // What the policy refuses is nothing that went wrong, nor is a driver that shuts down.
      const bool is_refused = dynamic_cast<const StagingRefused*>(&error) != nullptr;
      const auto* const failed = dynamic_cast<const DriverError*>(&error);
      const LogLevel level = is_refused          ? LogLevel::info
                             : failed == nullptr ? LogLevel::warn
                                                 : level_of_result(failed->code());
      if (told_.insert(error.what()).second)
        log_message(level, fmt::format("route {} is not used for now: {}", to_string(widen->route),
                                       error.what()));
    } else {
      log_info("memory of another process is not reached by every GPU: {}", error.what());
    }
    return false;
  }
}

void Preparer::run(std::stop_token stop) {
  // Allocating here must not break a capture that another thread has under way.
  const RelaxedCapture relaxed(driver_);
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [&] { return !tasks_.empty(); }) && !stop.stop_requested()) {
    const Task task = tasks_.front();
    lock.unlock();
    const bool done = carry_out(task);
    lock.lock();
    if (const auto* const widen = std::get_if<Widen>(&task)) remember(widen->route, done);
    tasks_.pop_front();
    changed_.notify_all();
  }
}

}  // namespace polypath
