#include "topology/default_graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "topology/defaults.hpp"

namespace polypath {
namespace {

/// How a GPU reaches host memory.
struct HostLeg {
  LinkType type;
  int width;
  Capacity capacity;
};

HostLeg host_leg(const ObservedGpu& seen) {
  if (seen.nvlinks.to_cpu > 0)
    return {LinkType::nvlink, seen.nvlinks.to_cpu,
            nvlink_host_default(seen.compute_capability, seen.nvlinks.to_cpu)};
  if (seen.coherent_with_cpu) return {LinkType::c2c, 0, c2c_default()};
  return {LinkType::pcie, seen.gpu.pcie_width,
          pcie_default(seen.gpu.pcie_generation, seen.gpu.pcie_width)};
}

class GraphMaker {
 public:
  GraphMaker(const std::vector<ObservedGpu>& seen, const std::vector<HostMemory>& domains)
      : seen_(seen) {
    node_.hosts = domains;
    for (const ObservedGpu& gpu : seen_) add_host(gpu.gpu.numa);
    std::sort(node_.hosts.begin(), node_.hosts.end(),
              [](const HostMemory& a, const HostMemory& b) { return a.numa < b.numa; });
    for (const ObservedGpu& gpu : seen_) {
      node_.gpus.push_back(gpu.gpu);
      node_.gpus.back().numa = host_index(gpu.gpu.numa);
      legs_.push_back(host_leg(gpu));
    }
  }

  Node make() {
    add_host_ports();
    add_switch_ports();
    for (std::size_t from = 0; from < seen_.size(); ++from)
      for (std::size_t to = 0; to < seen_.size(); ++to)
        if (from != to) add_peer_link(from, to);
    for (std::size_t gpu = 0; gpu < seen_.size(); ++gpu)
      for (std::size_t host = 0; host < node_.hosts.size(); ++host) add_host_links(gpu, host);
    return std::move(node_);
  }

 private:
  static MemoryId gpu_id(std::size_t index) { return MemoryId::gpu(static_cast<int>(index)); }
  static MemoryId host_id(std::size_t index) { return MemoryId::host(static_cast<int>(index)); }

  void add_host(int numa) {
    const bool known = std::any_of(node_.hosts.begin(), node_.hosts.end(),
                                   [&](const HostMemory& host) { return host.numa == numa; });
    if (!known) node_.hosts.push_back({numa, 0});
  }

  int host_index(int numa) const {
    const auto host = std::find_if(node_.hosts.begin(), node_.hosts.end(),
                                   [&](const HostMemory& other) { return other.numa == numa; });
    return static_cast<int>(host - node_.hosts.begin());
  }

  int add_port(std::string name, double gbps) {
    node_.ports.push_back({std::move(name), gbps});
    return static_cast<int>(node_.ports.size()) - 1;
  }

  void add_host_ports() {
    Capacity fastest = legs_.front().capacity;
    for (std::size_t gpu = 0; gpu < legs_.size(); ++gpu) {
      const HostLeg& leg = legs_[gpu];
      leg_ports_.push_back(add_port(
          fmt::format("{}.{}", to_string(leg.type), to_string(gpu_id(gpu))), leg.capacity.gbps));
      if (leg.capacity.gbps > fastest.gbps) fastest = leg.capacity;
    }
    for (std::size_t host = 0; host < node_.hosts.size(); ++host)
      host_ports_.push_back(
          add_port("host." + to_string(host_id(host)), host_port_default(fastest)));
    if (node_.hosts.size() > 1)
      socket_port_ = add_port("sockets", socket_port_default(far_default(fastest)));
  }

  void add_switch_ports() {
    for (std::size_t gpu = 0; gpu < seen_.size(); ++gpu) {
      const NvlinkView& view = seen_[gpu].nvlinks;
      if (view.to_switch == 0) {
        switch_out_.push_back(-1);
        switch_in_.push_back(-1);
        continue;
      }
      const double gbps = nvlink_default(seen_[gpu].compute_capability, view.to_switch).gbps;
      switch_out_.push_back(add_port("nvlink-out." + to_string(gpu_id(gpu)), gbps));
      switch_in_.push_back(add_port("nvlink-in." + to_string(gpu_id(gpu)), gbps));
    }
  }

  void add_link(MemoryId from, MemoryId to, LinkType type, int width, Capacity capacity,
                std::vector<int> ports) {
    node_.links.push_back(
        {from, to, type, capacity.gbps, capacity.nominal_gbps, width, std::move(ports)});
  }

  void add_peer_link(std::size_t from, std::size_t to) {
    const NvlinkView& source = seen_[from].nvlinks;
    const NvlinkView& destination = seen_[to].nvlinks;
    const auto direct = source.to_gpu.find(seen_[to].gpu.pci);
    if (!seen_[from].peer_access[to]) {
      add_host_bound_link(from, to, LinkType::bounce);
    } else if (direct != source.to_gpu.end()) {
      add_link(gpu_id(from), gpu_id(to), LinkType::nvlink, direct->second,
               nvlink_default(seen_[from].compute_capability, direct->second), {});
    } else if (source.to_switch > 0 && destination.to_switch > 0) {
      const int width = std::min(source.to_switch, destination.to_switch);
      add_link(gpu_id(from), gpu_id(to), LinkType::nvswitch, width,
               nvlink_default(seen_[from].compute_capability, width),
               {switch_out_[from], switch_in_[to]});
    } else {
      // Over the CPU's own NVLink (POWER9), or peer to peer over PCI Express.
      const bool by_cpu = source.to_cpu > 0 && destination.to_cpu > 0;
      add_host_bound_link(from, to, by_cpu ? LinkType::nvlink : LinkType::pcie);
    }
  }

  /// A link between two GPUs that takes both GPUs' links to the host, and has none of its own.
  void add_host_bound_link(std::size_t from, std::size_t to, LinkType type) {
    HostLeg leg = legs_[from].capacity.gbps <= legs_[to].capacity.gbps ? legs_[from] : legs_[to];
    leg.width = type == LinkType::nvlink ? 0 : std::min(legs_[from].width, legs_[to].width);
    std::vector<int> ports{leg_ports_[from], leg_ports_[to]};
    if (node_.gpus[from].numa != node_.gpus[to].numa) cross_sockets(leg, ports);
    add_link(gpu_id(from), gpu_id(to), type, leg.width, leg.capacity, std::move(ports));
  }

  void add_host_links(std::size_t gpu, std::size_t host) {
    HostLeg leg = legs_[gpu];
    std::vector<int> ports{leg_ports_[gpu], host_ports_[host]};
    if (node_.gpus[gpu].numa != static_cast<int>(host)) cross_sockets(leg, ports);
    add_link(gpu_id(gpu), host_id(host), leg.type, leg.width, leg.capacity, ports);
    add_link(host_id(host), gpu_id(gpu), leg.type, leg.width, leg.capacity, std::move(ports));
  }

  void cross_sockets(HostLeg& leg, std::vector<int>& ports) const {
    leg.width = 0;
    leg.capacity = far_default(leg.capacity);
    ports.push_back(socket_port_);
  }

  const std::vector<ObservedGpu>& seen_;
  Node node_;
  std::vector<HostLeg> legs_;    // by GPU
  std::vector<int> leg_ports_;   // by GPU: index of its host link's port
  std::vector<int> switch_out_;  // by GPU: index of its port, -1 without a switch
  std::vector<int> switch_in_;
  std::vector<int> host_ports_;  // by host memory
  int socket_port_ = -1;         // there is one when there are two hosts
};

}  // namespace

Node make_default_graph(const std::vector<ObservedGpu>& gpus,
                        const std::vector<HostMemory>& domains) {
  return GraphMaker(gpus, domains).make();
}

}  // namespace polypath
