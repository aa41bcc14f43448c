#include "topology/node_json.hpp"

#include "topology/cost_fields.hpp"

namespace polypath {
namespace {

using nlohmann::json;

json gpu_json(const Node& node, std::size_t index) {
  const Gpu& gpu = node.gpus[index];
  return {{"id", to_string(MemoryId::gpu(static_cast<int>(index)))},
          {"name", gpu.name},
          {"pci", gpu.pci},
          {"uuid", gpu.uuid},
          {"numa", node.hosts[static_cast<std::size_t>(gpu.numa)].numa},
          {"memory_bytes", gpu.memory_bytes},
          {"pcie_generation", gpu.pcie_generation},
          {"pcie_width", gpu.pcie_width}};
}

json link_json(const Node& node, const Link& link) {
  json ports = json::array();
  for (const int port : link.ports)
    ports.push_back(node.ports[static_cast<std::size_t>(port)].name);
  return {{"from", to_string(link.from)},
          {"to", to_string(link.to)},
          {"type", to_string(link.type)},
          {"width", link.width},
          {"gbps", link.gbps},
          {"nominal_gbps", link.nominal_gbps},
          {"ports", std::move(ports)}};
}

}  // namespace

json to_json(const Node& node) {
  json result = {{"name", node.name},      {"title", node.title},    {"source", node.source},
                 {"gpus", json::array()},  {"hosts", json::array()}, {"links", json::array()},
                 {"ports", json::array()}, {"costs", json::object()}};
  for (std::size_t i = 0; i < node.gpus.size(); ++i) result["gpus"].push_back(gpu_json(node, i));
  for (std::size_t i = 0; i < node.hosts.size(); ++i) {
    result["hosts"].push_back({{"id", to_string(MemoryId::host(static_cast<int>(i)))},
                               {"numa", node.hosts[i].numa},
                               {"memory_bytes", node.hosts[i].memory_bytes}});
  }
  for (const Link& link : node.links) result["links"].push_back(link_json(node, link));
  for (const Port& port : node.ports)
    result["ports"].push_back({{"name", port.name}, {"gbps", port.gbps}});
  for (const CostField& field : kCostFields)
    result["costs"][std::string(field.name)] = node.costs.*field.member;
  return result;
}

}  // namespace polypath
