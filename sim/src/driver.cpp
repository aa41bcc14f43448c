#include "driver.hpp"

#include <algorithm>
#include <set>

#include "failure.hpp"
#include "threaded_devices.hpp"
#include "threaded_kernels.hpp"
#include "virtual_devices.hpp"
#include "virtual_kernels.hpp"

namespace polypath::sim {
namespace {

std::vector<std::uint64_t> free_bytes(const Node& node, const Mode& mode) {
  std::vector<std::uint64_t> bytes;
  for (const Gpu& gpu : node.gpus) bytes.push_back(std::min(gpu.memory_bytes, mode.free_bytes));
  return bytes;
}

}  // namespace

Driver::Driver(Node simulated, const Mode& mode_settings)
    : node(std::move(simulated)),
      mode(mode_settings),
      routing_(node),
      memory_(free_bytes(node, mode), mode.is_functional, mode.reuses_addresses),
      devices_(make_devices()),
      captures_(graphs_),
      streams_(contexts_, captures_, *devices_, mode.timeout),
      events_(contexts_, mode.is_functional),
      pools_(memory_, node.gpus.size()),
      deallocator_(memory_, pools_, streams_, *devices_),
      virtual_memory_(node, memory_, deallocator_, *devices_),
      copies_(node, routing_, memory_, pools_, contexts_, streams_, captures_, *devices_, counters),
      kernels_(node, mutex, contexts_, streams_, captures_, *devices_, make_kernel_runner()),
      graph_execs_(node, memory_, graphs_, contexts_, streams_, events_, copies_, kernels_,
                   *devices_, counters),
      context_lifecycle_(node, mode, mutex,
                         {memory_, *devices_, contexts_, streams_, events_, deallocator_, kernels_,
                          graph_execs_, counters}) {
  counters.links.resize(node.links.size());
  for (const BackgroundTraffic& traffic : node.traffic)
    devices_->start_traffic(traffic_flow(node, traffic), true);
}

std::unique_ptr<Devices> Driver::make_devices() {
  if (mode.is_functional) {
    std::set<int> engines;
    for (std::size_t i = 0; mode.has_greedy_engines && i < node.links.size(); ++i)
      if (node.links[i].from.is_host() || node.links[i].to.is_host())
        engines.insert(static_cast<int>(i));
    return std::make_unique<ThreadedDevices>(mutex, mode.seed, mode.machine, node.name,
                                             mode.has_call_times, std::move(engines));
  }
  return std::make_unique<VirtualDevices>(mutex, node.costs, routing_.capacities(), mode.timeout);
}

std::unique_ptr<KernelRunner> Driver::make_kernel_runner() {
  const KernelEnvironment environment{node, mutex, memory_, contexts_, pools_, counters};
  if (mode.is_functional)
    return std::make_unique<ThreadedKernels>(environment, mode.seed, mode.folds_blocks,
                                             mode.has_whole_lines);
  return std::make_unique<VirtualKernels>(environment, routing_,
                                          static_cast<VirtualDevices&>(*devices_).timeline(),
                                          mode.has_whole_lines);
}

}  // namespace polypath::sim
