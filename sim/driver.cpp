#include "driver.hpp"

#include <cstdio>
#include <cstdlib>

#include "base/error.hpp"
#include "failure.hpp"
#include "topology/node_file.hpp"
#include "virtual_devices.hpp"

namespace polypath::sim {
namespace {

std::mutex instance_mutex;
std::atomic<Driver*> instance{nullptr};

std::vector<std::uint64_t> gpu_bytes(const Node& node) {
  std::vector<std::uint64_t> bytes;
  for (const Gpu& gpu : node.gpus) bytes.push_back(gpu.memory_bytes);
  return bytes;
}

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
      devices_(std::make_unique<VirtualDevices>(mutex, node.costs, routing_.capacities_gbps())) {
  counters.links.resize(node.links.size());
  for (std::size_t device = 0; device < node.gpus.size(); ++device) {
    auto pool = std::make_unique<Pool>();
    pool->device = static_cast<int>(device);
    default_pools.push_back(pools.add(std::move(pool)));
  }
}

void Driver::release(AllocationPtr allocation) {
  devices_->wait_until([&allocation] { return allocation.use_count() == 1; });
  memory.give_back(allocation);
}

}  // namespace polypath::sim
