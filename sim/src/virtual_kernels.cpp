#include "virtual_kernels.hpp"

#include <algorithm>
#include <cstdio>

#include "counters.hpp"
#include "device_traits.hpp"
#include "devices.hpp"

namespace polypath::sim {
namespace {

constexpr std::size_t kWord = 16;                          // bytes: up to here, no bulk
constexpr std::size_t kHostFlag = 4;                       // of host memory: what ends a wait
constexpr std::size_t kFlowBytes = std::size_t{64} << 10;  // of one flow, about
constexpr unsigned kBlockThreads = 512;                    // that block_gbps counts with
constexpr double kTimeIntervalUs = 10'000;                 // between looks at the time

class VirtualMemorySystem : public KernelMemory {
 public:
  VirtualMemorySystem(const KernelEnvironment& environment, CUcontext context, int device,
                      VirtualKernels& kernels, unsigned blocks, double block_gbps)
      : KernelMemory(environment, context, device, true),
        kernels_(kernels),
        block_gbps_(block_gbps),
        free_us_(blocks) {}

  std::uint64_t now_ns() override { return kernels_.global_timer_ns(); }

  bool fetch(const simt::detail::LoadPart* parts, std::size_t count, bool acquires,
             std::function<void()> then) override {
    const auto left = std::make_shared<std::size_t>(0);
    const auto shared = std::make_shared<std::function<void()>>(std::move(then));
    const auto arrived = [left, shared] {
      if (--*left == 0) (*shared)();
    };
    const MemoryId own = MemoryId::gpu(device());
    for (std::size_t i = 0; i < count; ++i) {
      const MemoryId from = location(reinterpret_cast<std::uintptr_t>(parts[i].from));
      const bool is_word = parts[i].bytes <= kWord;
      const bool is_free =
          (from == own && !acquires) || (from.is_host() && parts[i].bytes <= kHostFlag);
      if (parts[i].bytes == 0 || (is_word && is_free)) continue;
      ++*left;
      const Costs& costs = kernels_.costs();
      const bool is_word_of_other = is_word && from != own;
      const double latency_us =
          (is_word_of_other ? 0 : costs.load_us) + (from == own ? 0 : costs.flag_us);
      if (is_word)
        kernels_.at(kernels_.now_us() + latency_us, arrived);
      else
        kernels_.send(device(), from, own, parts[i].bytes, latency_us, arrived);
    }
    return *left > 0;
  }

  bool send(unsigned block, std::uintptr_t address, std::size_t bytes, double& busy_ns,
            std::function<void()> arrived) override {
    const MemoryId own = MemoryId::gpu(device());
    const MemoryId to = location(address);
    const bool is_word = bytes <= kWord;
    if (to == own && is_word) return false;
    double latency_us = 0;
    if (to != own) latency_us = is_word ? kernels_.costs().flag_us : kernels_.costs().fence_us;
    if (to != own && !is_word) {
      const double now = kernels_.now_us();
      double& free_us = free_us_[block];
      free_us = std::max(free_us, now) + static_cast<double>(bytes) / (block_gbps_ * 1e3);
      busy_ns = (free_us - now) * 1e3;
    }
    kernels_.send(device(), own, to, bytes, latency_us, std::move(arrived));
    return true;
  }

  void wait(double ns, std::function<void()> then) override {
    kernels_.at(kernels_.now_us() + ns / 1e3, std::move(then));
  }

  double fence_ns() override { return kernels_.costs().flag_us * 1e3; }

 private:
  VirtualKernels& kernels_;
  const double block_gbps_;
  std::vector<double> free_us_;  // by block: when what it stored so far has left it
};

}  // namespace

VirtualKernels::VirtualKernels(const KernelEnvironment& environment, const Routing& routing,
                               Timeline& timeline, bool whole_lines)
    : environment_(environment),
      routing_(routing),
      timeline_(timeline),
      machine_({.seed = 1, .is_timed = true, .max_parts = 1, .whole_lines = whole_lines}) {
  timeline.attach(*this);
}

const Costs& VirtualKernels::costs() const noexcept { return environment_.node.costs; }

std::uint64_t VirtualKernels::global_timer_ns() const noexcept {
  return static_cast<std::uint64_t>(now_us() * 1e3) + passed_ns_;
}

void VirtualKernels::begin(std::shared_ptr<KernelRun> run) {
  const double threads = std::min(run->call.threads, kBlockThreads);
  run->outside = std::make_unique<VirtualMemorySystem>(
      environment_, run->call.context, run->device, *this, run->call.blocks,
      costs().block_gbps * threads / kBlockThreads);
  at(now_us() + costs().kernel_start_us, [this, run] {
    machine_.start(launch_of(*run, multiprocessors(environment_.node, run->device), true),
                   *run->outside, [run](const std::string& error) {
                     run->error = error;
                     run->has_ended.store(true, std::memory_order_release);
                   });
  });
}

double VirtualKernels::next_us() const {
  return events_.empty() ? Timeline::kNever : events_.begin()->first;
}

void VirtualKernels::run(double now_us) {
  while (!events_.empty() && events_.begin()->first <= now_us) {
    const auto then = events_.extract(events_.begin()).mapped();
    then();
  }
  machine_.run();
}

void VirtualKernels::send(int device, MemoryId from, MemoryId to, std::size_t bytes,
                          double latency_us, std::function<void()> then) {
  const auto [known, is_new] = pipe_of_.try_emplace({from, to}, pipes_.size());
  if (is_new) {
    CopyRoute route = routing_.kernel_route(device, from, to);
    pipes_.push_back({std::move(route.demand), std::move(route.links), {}, {}});
  }
  Pipe& pipe = pipes_[known->second];
  pipe.waiting.push_back({bytes, latency_us, std::move(then)});
  // After all that threads store at this time: it flows together.
  if (pipe.flowing.empty() && pipe.waiting.size() == 1)
    at(now_us(), [this, index = known->second] { start_flow(index); });
}

void VirtualKernels::start_flow(std::size_t index) {
  Pipe& pipe = pipes_[index];
  if (!pipe.flowing.empty() || pipe.waiting.empty()) return;
  std::size_t bytes = 0;
  while (!pipe.waiting.empty() && bytes < kFlowBytes) {
    bytes += pipe.waiting.front().bytes;
    pipe.flowing.push_back(std::move(pipe.waiting.front()));
    pipe.waiting.pop_front();
  }
  FlowDemand demand = pipe.demand;
  demand.bytes = static_cast<double>(bytes);
  timeline_.start_flow(index, std::move(demand));
}

void VirtualKernels::flow_ended(FlowNetwork::Id id, double now_us) {
  Pipe& pipe = pipes_[id];
  std::vector<Parcel> flowed = std::exchange(pipe.flowing, {});
  std::size_t bytes = 0;
  for (auto first = flowed.begin(); first != flowed.end();) {
    // Parcels that arrive together are one event.
    const double latency_us = first->latency_us;
    std::vector<std::function<void()>> arrivals;
    for (; first != flowed.end() && first->latency_us == latency_us; ++first) {
      bytes += first->bytes;
      arrivals.push_back(std::move(first->then));
    }
    at(now_us + latency_us, [arrivals = std::move(arrivals)] {
      for (const std::function<void()>& arrive : arrivals) arrive();
    });
  }
  for (const int link : pipe.links)
    environment_.counters.links[static_cast<std::size_t>(link)].bytes += bytes;
  at(now_us, [this, id] { start_flow(id); });
}

bool VirtualKernels::look(double now_us) {
  bool goes_on = machine_.look_at_watches();
  // Waiting threads see the time pass, now and then.
  if (now_us - looked_at_time_us_ >= kTimeIntervalUs) {
    looked_at_time_us_ = now_us;
    if (machine_.let_time_pass()) goes_on = true;
  }
  if (!goes_on) return false;
  at(now_us, [] {});  // a turn for those that go on
  return true;
}

void VirtualKernels::give_up(double now_us) {
  constexpr std::uint64_t kMaxNs = std::uint64_t{1} << 62;
  if (!machine_.has_grids()) return;
  passed_ns_ = std::max<std::uint64_t>(passed_ns_ * 2, 1'000'000'000);
  if (passed_ns_ > kMaxNs || !machine_.let_time_pass()) {
    std::fprintf(stderr, "polypath_sim: kernels wait for what nobody sends:\n%s",
                 machine_.describe().c_str());
    machine_.kill("deadlock");
  }
  at(now_us, [] {});
}

}  // namespace polypath::sim
