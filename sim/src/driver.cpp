#include "driver.hpp"

#include <pthread.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>

#include "base/error.hpp"
#include "base/units.hpp"
#include "failure.hpp"
#include "threaded_devices.hpp"
#include "threaded_kernels.hpp"
#include "topology/node_file.hpp"
#include "virtual_devices.hpp"
#include "virtual_kernels.hpp"

namespace polypath::sim {
namespace {

std::mutex instance_mutex;
std::atomic<Driver*> instance{nullptr};

// Set in a forked child. Its copy of the driver has no threads, and perhaps a lock that no thread
// will open.
std::atomic<bool> is_orphaned{false};
Driver* abandoned = nullptr;  // kept reachable

void abandon() {
  is_orphaned.store(true);
  abandoned = instance.exchange(nullptr);
}

std::vector<std::uint64_t> free_bytes(const Node& node, const Mode& mode) {
  std::vector<std::uint64_t> bytes;
  for (const Gpu& gpu : node.gpus) bytes.push_back(std::min(gpu.memory_bytes, mode.free_bytes));
  return bytes;
}

}  // namespace

void Driver::initialise() {
  require(!is_orphaned.load(), CUDA_ERROR_NOT_INITIALIZED);
  const std::lock_guard lock(instance_mutex);
  if (instance.load() != nullptr) return;
  const char* const name = std::getenv("POLYPATH_NODE");
  if (name == nullptr || *name == '\0') {
    std::fprintf(stderr, "polypath_sim: POLYPATH_NODE names no node (a name or a file)\n");
    throw Failure{CUDA_ERROR_NO_DEVICE};
  }
  try {
    // Never destroyed: the program's own destructors may still call.
    instance.store(new Driver(read_node_file(find_node_file(name)), read_mode()));
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

void Driver::forbid_children() {
  static const int once = ::pthread_atfork(nullptr, nullptr, abandon);
  require(once == 0, CUDA_ERROR_OUT_OF_MEMORY);
}

Driver::Driver(Node simulated, const Mode& mode_settings)
    : node(std::move(simulated)),
      mode(mode_settings),
      memory(free_bytes(node, mode), mode.is_functional, mode.reuses_addresses),
      primaries(node.gpus.size()),
      claims(node.gpus.size()),
      routing_(node),
      devices_(make_devices()),
      kernels_(make_kernels()) {
  counters.links.resize(node.links.size());
  for (std::size_t device = 0; device < node.gpus.size(); ++device) {
    auto pool = std::make_unique<Pool>();
    pool->device = static_cast<int>(device);
    pool->access.by_device[pool->device] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    default_pools.push_back(pools.add(std::move(pool)));
  }
  current_pools = default_pools;
  for (const BackgroundTraffic& traffic : node.traffic) start_traffic(traffic, true);
}

int Driver::start_traffic(const BackgroundTraffic& traffic, bool from_file) {
  const auto link = node.find_link(traffic.from, traffic.to);
  require(link.has_value(), CUDA_ERROR_INVALID_VALUE);
  const bool has_host_side = traffic.from.is_host() || traffic.to.is_host();
  const int gpu = traffic.from.is_gpu() ? traffic.from.index : traffic.to.index;
  TrafficFlow flow;
  flow.block = routing_.route(gpu, traffic.from, traffic.to, true).demand;
  flow.block.bytes = static_cast<double>(traffic.block_bytes);
  flow.engine = has_host_side ? *link : -1;
  flow.queue_blocks = traffic.queue_blocks;
  flow.on_us = traffic.on_us;
  flow.off_us = traffic.off_us;
  flow.begin_us = traffic.begin_us;
  if (traffic.end_us > 0) flow.end_us = traffic.end_us;
  flow.block_us =
      node.costs.copy_gap_us +
      flow.block.bytes / (node.links[static_cast<std::size_t>(*link)].gbps * kBytesPerGbpsUs);
  return devices_->start_traffic(std::move(flow), from_file);
}

std::unique_ptr<Devices> Driver::make_devices() {
  if (mode.is_functional) {
    std::set<int> engines;
    for (std::size_t i = 0; mode.has_greedy_engines && i < node.links.size(); ++i)
      if (node.links[i].from.is_host() || node.links[i].to.is_host())
        engines.insert(static_cast<int>(i));
    return std::make_unique<ThreadedDevices>(mutex, mode.seed, mode.machine, node.name,
                                             std::move(engines));
  }
  return std::make_unique<VirtualDevices>(mutex, node.costs, routing_.capacities(), mode.timeout);
}

std::unique_ptr<Kernels> Driver::make_kernels() {
  if (mode.is_functional)
    return std::make_unique<ThreadedKernels>(*this, mode.seed, mode.folds_blocks);
  return std::make_unique<VirtualKernels>(*this, routing_,
                                          static_cast<VirtualDevices&>(*devices_).timeline());
}

void Driver::free_memory(AllocationPtr allocation) {
  memory.remove(allocation);
  if (allocation->context != nullptr) synchronize(allocation->context);
  release(std::move(allocation));
}

void Driver::release(AllocationPtr allocation) {
  devices_->wait_until([&allocation] { return allocation.use_count() == 1; });
  memory.release(allocation);
  if (allocation->pool != nullptr) forget_pool(allocation->pool);
}

}  // namespace polypath::sim
