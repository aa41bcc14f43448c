#include "topology/node.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <set>

#include "base/error.hpp"

namespace polypath {
namespace {

void require(bool holds, const std::string& reason) {
  if (!holds) throw InvalidArgument(reason);
}

bool is_capacity(double gbps) { return std::isfinite(gbps) && gbps > 0; }

void validate_gpu(const Node& node, int index) {
  const MemoryId gpu = MemoryId::gpu(index);
  const MemoryId host = MemoryId::host(node.gpus[static_cast<std::size_t>(index)].numa);
  const std::string name = to_string(gpu);
  require(node.contains(host),
          fmt::format("{} is nearest to {}, which the node does not have", name, to_string(host)));
  require(node.find_link(gpu, host).has_value(),
          fmt::format("{} has no link to its host memory {}", name, to_string(host)));
  require(node.find_link(host, gpu).has_value(),
          fmt::format("{} has no link from its host memory {}", name, to_string(host)));
}

void validate_link(const Node& node, const Link& link) {
  const std::string name = fmt::format("link {} to {}", to_string(link.from), to_string(link.to));
  for (const MemoryId end : {link.from, link.to})
    require(node.contains(end), fmt::format("{}: the node has no {}", name, to_string(end)));
  require(link.from != link.to, name + ": both ends are the same memory");
  require(link.from.is_gpu() || link.to.is_gpu(),
          name + ": one end of a link must be a GPU, whose copy engine moves the data");
  require(is_capacity(link.gbps),
          fmt::format("{}: capacity {} GB/s is not positive", name, link.gbps));
  for (const int port : link.ports)
    require(port >= 0 && static_cast<std::size_t>(port) < node.ports.size(),
            fmt::format("{}: port index {} is not below {}", name, port, node.ports.size()));
}

void validate_traffic(const Node& node, const BackgroundTraffic& traffic) {
  const std::string name =
      fmt::format("traffic {} to {}", to_string(traffic.from), to_string(traffic.to));
  require(node.find_link(traffic.from, traffic.to).has_value(), name + ": there is no such link");
  require(traffic.block_bytes > 0, name + ": a block has no bytes");
  require(traffic.queue_blocks > 0, name + ": queue_blocks is not positive");
  require((traffic.on_us > 0) == (traffic.off_us > 0) && traffic.on_us >= 0 && traffic.off_us >= 0,
          name + ": on_us and off_us must be positive, or both 0");
  require(traffic.end_us == 0 || traffic.end_us > traffic.begin_us,
          name + ": it must end after it begins");
}

}  // namespace

std::string to_string(MemoryId id) {
  return fmt::format("{}{}", id.is_gpu() ? "gpu" : "host", id.index);
}

MemoryId parse_memory(std::string_view text) {
  if (text == "host") return MemoryId::host(0);
  const bool is_gpu = text.starts_with("gpu");
  if (is_gpu || text.starts_with("host")) {
    const std::string_view number = text.substr(is_gpu ? 3 : 4);
    unsigned short index = 0;
    const char* const end = number.data() + number.size();
    const auto [rest, problem] = std::from_chars(number.data(), end, index);
    if (problem == std::errc{} && rest == end)
      return is_gpu ? MemoryId::gpu(index) : MemoryId::host(index);
  }
  throw InvalidArgument(fmt::format("'{}' is not a memory: write gpu0, gpu1, ... or host0", text));
}

std::string_view to_string(LinkType type) noexcept {
  switch (type) {
    case LinkType::nvlink: return "nvlink";
    case LinkType::nvswitch: return "nvswitch";
    case LinkType::pcie: return "pcie";
    case LinkType::c2c: return "c2c";
    case LinkType::bounce: return "bounce";
  }
  return "unknown";
}

std::optional<int> Node::find_link(MemoryId from, MemoryId to) const noexcept {
  for (std::size_t i = 0; i < links.size(); ++i)
    if (links[i].from == from && links[i].to == to) return static_cast<int>(i);
  return std::nullopt;
}

bool Node::contains(MemoryId id) const noexcept {
  const std::size_t count = id.is_gpu() ? gpus.size() : hosts.size();
  return id.index >= 0 && static_cast<std::size_t>(id.index) < count;
}

std::vector<MemoryId> Node::memories() const {
  std::vector<MemoryId> all;
  for (std::size_t i = 0; i < gpus.size(); ++i) all.push_back(MemoryId::gpu(static_cast<int>(i)));
  for (std::size_t i = 0; i < hosts.size(); ++i) all.push_back(MemoryId::host(static_cast<int>(i)));
  return all;
}

void validate(const Node& node) {
  require(!node.gpus.empty(), "the node has no GPU");
  require(!node.hosts.empty(), "the node has no host memory");
  std::set<std::string_view> names;
  for (const Port& port : node.ports) {
    require(names.insert(port.name).second, fmt::format("port '{}' exists twice", port.name));
    require(is_capacity(port.gbps),
            fmt::format("port '{}': capacity {} GB/s is not positive", port.name, port.gbps));
  }
  std::set<std::pair<MemoryId, MemoryId>> pairs;
  for (const Link& link : node.links) {
    validate_link(node, link);
    require(pairs.insert({link.from, link.to}).second,
            fmt::format("link {} to {} exists twice", to_string(link.from), to_string(link.to)));
  }
  for (std::size_t i = 0; i < node.gpus.size(); ++i) validate_gpu(node, static_cast<int>(i));
  for (const BackgroundTraffic& traffic : node.traffic) validate_traffic(node, traffic);
}

}  // namespace polypath
