#include "driver.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "base/error.hpp"
#include "failure.hpp"
#include "topology/node_file.hpp"

namespace polypath::sim {
namespace {

std::mutex instance_mutex;
std::atomic<Driver*> instance{nullptr};

std::vector<std::uint64_t> gpu_bytes(const Node& node) {
  std::vector<std::uint64_t> bytes;
  for (const Gpu& gpu : node.gpus) bytes.push_back(gpu.memory_bytes);
  return bytes;
}

// How a blocked thread waits for another one of the program, in real time.
constexpr auto kPollInterval = std::chrono::microseconds(50);
constexpr auto kComplainAfter = std::chrono::seconds(10);

}  // namespace

void Driver::initialise() {
  const std::lock_guard lock(instance_mutex);
  if (instance.load() != nullptr) return;
  const char* const name = std::getenv("POLYPATH_NODE");
  if (name == nullptr || *name == '\0') {
    std::fprintf(stderr, "polypath_sim: POLYPATH_NODE names no node (a name or a file)\n");
    throw Failure{CUDA_ERROR_NO_DEVICE};
  }
  try {
    // Never destroyed: the program's own destructors may still call.
    instance.store(new Driver(read_node_file(find_node_file(name))));
  } catch (const Error& error) {
    std::fprintf(stderr, "polypath_sim: %s\n", error.what());
    throw Failure{CUDA_ERROR_NO_DEVICE};
  }
}

Driver& Driver::get() {
  Driver* const driver = instance.load(std::memory_order_acquire);
  require(driver != nullptr, CUDA_ERROR_NOT_INITIALIZED);
  return *driver;
}

Driver::Driver(Node simulated)
    : node(std::move(simulated)),
      memory(gpu_bytes(node)),
      primaries(node.gpus.size()),
      routing_(node),
      timeline_(node.costs, routing_.capacities_gbps()) {
  counters.links.resize(node.links.size());
  for (std::size_t device = 0; device < node.gpus.size(); ++device) {
    auto pool = std::make_unique<Pool>();
    pool->device = static_cast<int>(device);
    default_pools.push_back(pools.add(std::move(pool)));
  }
}

void Driver::catch_up() {
  timeline_.poll(clock_us_);
  timeline_.run_until(clock_us_);
}

void Driver::wait_until(const std::function<bool()>& holds) {
  const auto begin = std::chrono::steady_clock::now();
  bool complained = false;
  while (!holds()) {
    timeline_.poll(clock_us_);
    if (timeline_.step()) {
      // A blocked CPU sees the time pass.
      clock_us_ = std::max(clock_us_, timeline_.now_us());
      continue;
    }
    if (!timeline_.has_waiting()) {
      std::fprintf(stderr, "polypath_sim: deadlock: nothing is left that could complete\n");
      throw Failure{CUDA_ERROR_UNKNOWN};
    }
    if (!complained && std::chrono::steady_clock::now() - begin > kComplainAfter) {
      complained = true;
      std::fprintf(stderr,
                   "polypath_sim: a call still blocks on a stream that waits for a value "
                   "(cuStreamWaitValue32)\n");
    }
    mutex.unlock();
    std::this_thread::sleep_for(kPollInterval);
    mutex.lock();
  }
}

void Driver::release(AllocationPtr allocation) {
  wait_until([&allocation] { return allocation.use_count() == 1; });
  memory.give_back(allocation);
}

void Driver::wait(const OperationPtr& operation) {
  wait_until([&operation] { return operation->done; });
  clock_us_ = std::max(clock_us_, operation->end_us);
}

}  // namespace polypath::sim
