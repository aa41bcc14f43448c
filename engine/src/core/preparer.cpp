#include "core/preparer.hpp"

#include <algorithm>
#include <system_error>

#include "base/log.hpp"
#include "base/thread.hpp"
#include "exec/relaxed_capture.hpp"
#include "exec/staging_policy.hpp"

namespace polypath {
namespace {

/// Between two steps of a route. Locks of the driver are not fair: without a pause a thread that
/// takes one again and again keeps out a call of the program that waits for it.
constexpr std::chrono::microseconds kPause{100};

}  // namespace

Preparer::Preparer(const CudaDriver& driver, RouteResources& resources, ImportedMemories& imports,
                   int threads, LoadMonitor* load)
    : driver_(driver),
      resources_(resources),
      imports_(imports),
      load_(load),
      max_threads_(static_cast<std::size_t>(std::max(1, threads))) {}

Preparer::~Preparer() { stop(); }

void Preparer::stop() noexcept {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  for (std::jthread& thread : threads_) thread.request_stop();
  changed_.notify_all();
}

bool Preparer::is_known(const What& what) const {
  return std::ranges::find(tasks_, what, &Task::what) != tasks_.end();
}

void Preparer::add(What what) {
  if (stopped_ || is_known(what)) return;
  for (const int gpu : gpus_of(what))
    if (gpu >= 0 && !is_known(MakeContext{gpu}) && !resources_.has_context(gpu))
      tasks_.push_back({MakeContext{gpu}});
  tasks_.push_back({std::move(what)});
  if (!start_thread()) return tasks_.clear();
  changed_.notify_all();
}

bool Preparer::start_thread() {
  const auto to_do = static_cast<std::size_t>(std::ranges::count_if(
      tasks_, [&](const Task& task) { return !task.is_taken && !waits_for_context(task.what); }));
  try {
    while (idle_ < to_do && threads_.size() < max_threads_) {
      threads_.push_back(make_thread([this](std::stop_token stop) { run(stop); }));
      ++idle_;
    }
  } catch (const std::system_error& error) {
    if (!threads_.empty()) return true;
    log_warn("no route is prepared: {}", error.what());
    stopped_ = true;
    return false;
  }
  return true;
}

RouteResources::RouteGpus Preparer::gpus_of(const What& what) const {
  if (const auto* const widen = std::get_if<Widen>(&what)) return resources_.gpus_of(widen->route);
  const auto* const import = std::get_if<Import>(&what);
  return {import != nullptr ? import->gpu : -1, -1, -1, -1};
}

bool Preparer::waits_for_context(const What& what) const {
  return std::ranges::any_of(gpus_of(what),
                             [&](int gpu) { return gpu >= 0 && is_known(MakeContext{gpu}); });
}

Preparer::Tasks::iterator Preparer::next() {
  auto context = tasks_.end();
  for (auto task = tasks_.begin(); task != tasks_.end(); ++task) {
    if (task->is_taken) continue;
    if (std::holds_alternative<MakeContext>(task->what)) {
      if (context == tasks_.end()) context = task;
    } else if (!waits_for_context(task->what)) {
      return task;
    }
  }
  return context;
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

bool Preparer::carry_out(const What& what) {
  const auto* const widen = std::get_if<Widen>(&what);
  try {
    if (widen != nullptr) {
      // The first transfer that takes the new route must know whether others use it.
      if (load_ != nullptr) load_->hold(widen->route);
      resources_.prepare(widen->route, widen->copies, kPause);
      if (load_ != nullptr) load_->check(widen->route, true);
    } else if (const auto* const import = std::get_if<Import>(&what)) {
      imports_.import_into(*import->memory, import->gpu);
    } else {
      resources_.make_context(std::get<MakeContext>(what).gpu);
    }
    return true;
  } catch (const std::exception& error) {
    if (widen != nullptr) {
      if (load_ != nullptr) load_->check(widen->route, false);
      // What the policy refuses is nothing that went wrong, nor is a driver that shuts down.
      const bool is_refused = dynamic_cast<const StagingRefused*>(&error) != nullptr;
      const auto* const failed = dynamic_cast<const DriverError*>(&error);
      const LogLevel level = is_refused          ? LogLevel::info
                             : failed == nullptr ? LogLevel::warn
                                                 : level_of_result(failed->code());
      const std::lock_guard lock(mutex_);
      if (told_.insert(error.what()).second)
        log_message(level, fmt::format("route {} is not used for now: {}", to_string(widen->route),
                                       error.what()));
    } else if (std::holds_alternative<Import>(what)) {
      log_info("memory of another process is not reached by every GPU: {}", error.what());
    }
    // A route that needs a context which could not be made tries once more, and reports it.
    return false;
  }
}

void Preparer::run(std::stop_token stop) {
  // Allocating here must not break a capture that another thread has under way.
  const RelaxedCapture relaxed(driver_);
  std::unique_lock lock(mutex_);
  auto task = tasks_.end();
  const auto has_task = [&] { return (task = next()) != tasks_.end(); };
  while (changed_.wait(lock, stop, has_task) && !stop.stop_requested()) {
    task->is_taken = true;
    --idle_;
    lock.unlock();
    const bool done = carry_out(task->what);
    lock.lock();
    ++idle_;
    if (const auto* const widen = std::get_if<Widen>(&task->what)) remember(widen->route, done);
    tasks_.erase(task);
    changed_.notify_all();
  }
}

}  // namespace polypath
