#include "threaded_kernels.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/thread.hpp"
#include "counters.hpp"
#include "device_traits.hpp"
#include "devices.hpp"

namespace polypath::sim {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kTurns = 4096;  // of threads, before the next look around
/// Between looks at the time. All that wait with a time limit look, thousands of threads: what has
/// waited for long finds out later, by an eighth of its wait at most.
constexpr auto kTimeInterval = std::chrono::milliseconds(20);
constexpr auto kMaxTimeInterval = std::chrono::milliseconds(250);
/// A poll for thousands of threads takes a while. The next poll comes after this many times the
/// length of the last one, so that the core is left to the threads that they wait for.
constexpr int kRestOfALook = 4;

class RealTimeMemorySystem : public KernelMemory {
 public:
  RealTimeMemorySystem(const KernelEnvironment& environment, CUcontext context, int device)
      : KernelMemory(environment, context, device, false) {}

  std::uint64_t now_ns() override {
    return static_cast<std::uint64_t>(
        std::chrono::nanoseconds(Clock::now().time_since_epoch()).count());
  }
  bool fetch(const simt::detail::LoadPart*, std::size_t, bool, std::function<void()>) override {
    return false;
  }
  bool send(unsigned, std::uintptr_t, std::size_t, double&, std::function<void()>) override {
    return false;
  }
  void wait(double, std::function<void()>) override {}
  double fence_ns() override { return 0; }
};

}  // namespace

void ThreadedKernels::begin(std::shared_ptr<KernelRun> run) {
  run->outside =
      std::make_unique<RealTimeMemorySystem>(environment_, run->call.context, run->device);
  const std::lock_guard lock(mutex_);
  begun_.push_back(std::move(run));
  if (!std::exchange(has_thread_, true)) make_thread([this] { work(); }).detach();
  work_.notify_one();
}

void ThreadedKernels::work() {
  simt::Machine machine({.seed = seed_,
                         .is_timed = false,
                         .max_parts = seed_ == 0 ? 1U : 4U,
                         .whole_lines = whole_lines_});
  Clock::time_point looked_at_time = Clock::now();
  Clock::time_point last_progress = looked_at_time;
  bool is_idle = false;
  bool is_by_time = false;  // threads have turns only because time has passed: that is no progress
  Clock::duration rest = kPollInterval;
  while (true) {
    std::unique_lock lock(mutex_);
    if (is_idle && machine.has_grids()) work_.wait_for(lock, rest);
    while (begun_.empty() && !machine.has_grids()) work_.wait(lock);
    const std::vector<std::shared_ptr<KernelRun>> begun = std::exchange(begun_, {});
    lock.unlock();
    for (const std::shared_ptr<KernelRun>& run : begun)
      machine.start(launch_of(*run, multiprocessors(environment_.node, run->device), folds_),
                    *run->outside, [run](const std::string& error) {
                      run->error = error;
                      run->has_ended.store(true, std::memory_order_release);
                    });
    is_idle = !machine.run(kTurns);
    // Other processes, and the program itself, write memory without a word.
    const Clock::time_point begin = Clock::now();
    if (machine.look_at_watches()) is_idle = false;
    const Clock::time_point end = Clock::now();
    if (is_idle) is_by_time = false;
    if (!is_idle && !is_by_time) last_progress = end;
    const Clock::duration idle = end - last_progress;
    rest = std::max(poll_interval(idle), kRestOfALook * (end - begin));
    if (end - looked_at_time >
        std::clamp<Clock::duration>(idle / 8, kTimeInterval, kMaxTimeInterval)) {
      is_by_time = machine.let_time_pass();
      looked_at_time = end;
    }
  }
}

}  // namespace polypath::sim
