// Kernels in virtual time. Threads take none for what they compute; what they load and store in
// bulk flows over the links and through their GPU's memory, and a flag takes its way.
//
// - What one block stores to another memory leaves it at block_gbps, queues after what its GPU has
//   on the way to the same memory, and flows with everything else. It is there fence_us after its
//   flow, words (up to 16 bytes) flag_us after it. A fence of system scope ends flag_us after
//   that.
// - What is loaded from another memory flows as well, and arrives flag_us and load_us later; words
//   take flag_us. Flags of 4 bytes in host memory take nothing: kernels look at them while they
//   wait.
// - Bytes in bulk of the GPU's own memory flow at memory_gbps, loads and stores together. Loads
//   take load_us more, and words that are acquired as well; other words take no time.
// - A kernel begins kernel_start_us after it may.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "kernel_runner.hpp"
#include "routing.hpp"
#include "timeline.hpp"

namespace polypath::sim {

class VirtualKernels : public KernelRunner, public KernelTimeline {
 public:
  VirtualKernels(const KernelEnvironment& environment, const Routing& routing, Timeline& timeline,
                 bool whole_lines);

  void begin(std::shared_ptr<KernelRun> run) override;

  [[nodiscard]] double next_us() const override;
  void run(double now_us) override;
  void flow_ended(FlowNetwork::Id id, double now_us) override;
  bool look(double now_us) override;
  void give_up(double now_us) override;

  // ---- for the kernels' outside ----

  void at(double us, std::function<void()> then) { events_.emplace(us, std::move(then)); }
  /// Sends bytes after all that is under way from `from` to `to`; `then` is called `latency_us`
  /// after their flow.
  void send(int device, MemoryId from, MemoryId to, std::size_t bytes, double latency_us,
            std::function<void()> then);
  [[nodiscard]] double now_us() const noexcept { return timeline_.now_us(); }
  [[nodiscard]] std::uint64_t global_timer_ns() const noexcept;
  [[nodiscard]] const Costs& costs() const noexcept;

 private:
  struct Parcel {
    std::size_t bytes;
    double latency_us;
    std::function<void()> then;
  };
  /// All that goes one way: one flow at a time, of all that waited when it began.
  struct Pipe {
    FlowDemand demand;
    std::vector<int> links;
    std::deque<Parcel> waiting;
    std::vector<Parcel> flowing;
  };
  void start_flow(std::size_t pipe);

  const KernelEnvironment environment_;
  const Routing& routing_;
  Timeline& timeline_;
  simt::Machine machine_;
  std::multimap<double, std::function<void()>> events_;
  std::vector<Pipe> pipes_;
  std::map<std::pair<MemoryId, MemoryId>, std::size_t> pipe_of_;
  std::uint64_t passed_ns_ = 0;  ///< by giving up
  double looked_at_time_us_ = 0;
};

}  // namespace polypath::sim
