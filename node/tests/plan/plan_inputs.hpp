// Nodes and requests to plan for, and what every plan must do.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "plan/plan.hpp"
#include "topology/node_file.hpp"

namespace polypath {

using Random = std::mt19937_64;

/// The node of a file in nodes/.
inline Node known_node(const std::string& name) {
  return read_node_file(std::string(NODES_DIR) + "/" + name + ".toml");
}

inline int pick(Random& random, int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(random);
}

/// Four GPUs, each linked to each; the host after a link of each.
inline Node mesh_node() {
  Node node;
  node.gpus.resize(4);
  node.hosts.resize(1);
  const auto link = [&](MemoryId from, MemoryId to, LinkType type, double gbps) {
    node.links.push_back({from, to, type, gbps, 0, 0, {}});
  };
  for (int gpu = 0; gpu < 4; ++gpu) {
    link(MemoryId::gpu(gpu), MemoryId::host(0), LinkType::pcie, 25);
    link(MemoryId::host(0), MemoryId::gpu(gpu), LinkType::pcie, 25);
    for (int peer = 0; peer < 4; ++peer)
      if (peer != gpu) link(MemoryId::gpu(gpu), MemoryId::gpu(peer), LinkType::nvlink, 90);
  }
  return node;
}

/// A node of 2 to 5 GPUs and one host, with some NVLinks, host links and shared ports.
inline Node random_node(Random& random) {
  Node node;
  const int gpus = pick(random, 2, 5);
  node.gpus.resize(static_cast<std::size_t>(gpus));
  node.hosts.resize(1);
  node.ports = {{"read", 20.0 + pick(random, 0, 100)}, {"write", 20.0 + pick(random, 0, 100)}};
  const auto link = [&](MemoryId from, MemoryId to, LinkType type, std::vector<int> ports) {
    node.links.push_back({from, to, type, 5.0 + pick(random, 0, 200), 0, 0, std::move(ports)});
  };
  for (int i = 0; i < gpus; ++i) {
    link(MemoryId::gpu(i), MemoryId::host(0), LinkType::pcie, {1});
    link(MemoryId::host(0), MemoryId::gpu(i), LinkType::pcie, {0});
    for (int j = 0; j < gpus; ++j)
      if (i != j) link(MemoryId::gpu(i), MemoryId::gpu(j), LinkType::nvlink, {});
  }
  return node;
}

inline std::vector<Request> random_requests(Random& random, const Node& node) {
  std::vector<Request> requests;
  const auto memories = node.memories();
  const int count = pick(random, 1, 3);
  while (static_cast<int>(requests.size()) < count) {
    const auto any = [&] {
      return memories[static_cast<std::size_t>(
          pick(random, 0, static_cast<int>(memories.size()) - 1))];
    };
    const Request request{any(), any(), 1 + random() % (std::uint64_t{1} << pick(random, 10, 30))};
    if (request.src != request.dst) requests.push_back(request);
  }
  return requests;
}

/// The shares cover the message exactly once, and their chunks the shares.
inline void expect_covered(const TransferPlan& transfer) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> parts;
  for (const RouteShare& share : transfer.routes) {
    parts.emplace_back(share.offset, share.bytes);
    EXPECT_GE(share.chunk_bytes * static_cast<std::uint64_t>(share.chunks), share.bytes);
    EXPECT_LT(share.chunk_bytes * static_cast<std::uint64_t>(share.chunks - 1), share.bytes);
  }
  std::ranges::sort(parts);
  std::uint64_t next = 0;
  for (const auto& [offset, bytes] : parts) {
    EXPECT_EQ(offset, next);
    EXPECT_GT(bytes, 0u);
    next = offset + bytes;
  }
  EXPECT_EQ(next, transfer.request.bytes);
}

}  // namespace polypath
