#include "comm/process_events.hpp"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "comm/control_segment.hpp"
#include "driver/context_resets.hpp"

namespace polypath {
namespace {

/// For a call of the driver that has begun and that may wait for a kernel, and for kernels of other
/// ranks.
constexpr std::chrono::seconds kMaxWait{1};

struct Listeners {
  std::mutex mutex;
  std::atomic<pid_t> process{0};  ///< whose they are: a child that it forks exits, too
  std::vector<ProcessEvents*> all;
};
Listeners& listeners() {
  static Listeners* const instance = new Listeners;  // for communicators that end with the process
  return *instance;
}

void end_process() noexcept {
  Listeners& current = listeners();
  if (current.process != ::getpid()) return;
  {
    const std::lock_guard lock(current.mutex);
    for (ProcessEvents* const events : current.all) events->process_ends();
  }
  lose_contexts_at_exit();
  ControlSegment::wake_all();
  wait_for_context_users(kMaxWait);
}

/// After the driver's own preparations, so that exit() comes here first.
void prepare_process() {
  static std::once_flag once;
  std::call_once(once, [] {
    // A child has none of the threads, and the communicators are its parent's.
    pthread_atfork([] { listeners().mutex.lock(); }, [] { listeners().mutex.unlock(); },
                   [] {
                     listeners().all.clear();
                     listeners().mutex.unlock();
                   });
    std::atexit(&end_process);
  });
}

}  // namespace

void ProcessEvents::add(ProcessEvents& events) {
  prepare_process();
  Listeners& current = listeners();
  const std::lock_guard lock(current.mutex);
  current.all.push_back(&events);
  current.process = ::getpid();
}

void ProcessEvents::remove(ProcessEvents& events) noexcept {
  Listeners& current = listeners();
  const std::lock_guard lock(current.mutex);
  std::erase(current.all, &events);
}

void announce_reset(int gpu) noexcept {
  {
    Listeners& current = listeners();
    const std::lock_guard lock(current.mutex);
    for (ProcessEvents* const events : current.all) events->gpu_is_reset(gpu);
    const auto deadline = std::chrono::steady_clock::now() + kMaxWait;
    for (ProcessEvents* const events : current.all) events->wait_for_others(gpu, deadline);
  }
  lose_contexts(gpu);
  ControlSegment::wake_all();
  wait_for_context_users(kMaxWait);
}

}  // namespace polypath
