// Writing node files: the other half of node_file.hpp.
#include <fmt/format.h>

#include <iterator>

#include "base/units.hpp"
#include "topology/cost_fields.hpp"
#include "topology/node_file.hpp"

namespace polypath {
namespace {

/// A TOML basic string.
std::string quote(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      fmt::format_to(std::back_inserter(quoted), "\\u{:04X}", static_cast<unsigned>(c));
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

double to_gib(std::uint64_t bytes) {
  return static_cast<double>(bytes) / static_cast<double>(kGiB);
}

std::string port_list(const Node& node, const Link& link) {
  std::string list;
  for (const int port : link.ports) {
    if (!list.empty()) list += ", ";
    list += quote(node.ports[static_cast<std::size_t>(port)].name);
  }
  return list;
}

}  // namespace

std::string format_node_file(const Node& node) {
  std::string text;
  const auto line = [&text](std::string_view key, const auto& value) {
    fmt::format_to(std::back_inserter(text), "{} = {}\n", key, value);
  };
  const auto header = [&text](std::string_view name) {
    fmt::format_to(std::back_inserter(text), "\n{}\n", name);
  };

  line("schema", 1);
  line("name", quote(node.name));
  line("title", quote(node.title));
  line("source", quote(node.source));
  header("[costs]");
  for (const CostField& field : kCostFields) line(field.name, node.costs.*field.member);
  for (const HostMemory& host : node.hosts) {
    header("[[host]]");
    line("numa", host.numa);
    line("memory_gib", to_gib(host.memory_bytes));
  }
  for (const Gpu& gpu : node.gpus) {
    header("[[gpu]]");
    line("name", quote(gpu.name));
    line("uuid", quote(gpu.uuid));
    line("pci", quote(gpu.pci));
    line("numa", node.hosts[static_cast<std::size_t>(gpu.numa)].numa);
    line("memory_gib", to_gib(gpu.memory_bytes));
    line("pcie_generation", gpu.pcie_generation);
    line("pcie_width", gpu.pcie_width);
  }
  for (const Port& port : node.ports) {
    header("[[port]]");
    line("name", quote(port.name));
    line("gbps", port.gbps);
  }
  for (const Link& link : node.links) {
    header("[[link]]");
    line("from", quote(to_string(link.from)));
    line("to", quote(to_string(link.to)));
    line("type", quote(to_string(link.type)));
    line("gbps", link.gbps);
    line("nominal_gbps", link.nominal_gbps);
    line("width", link.width);
    if (!link.ports.empty()) line("ports", fmt::format("[{}]", port_list(node, link)));
  }
  for (const BackgroundTraffic& traffic : node.traffic) {
    header("[[traffic]]");
    line("from", quote(to_string(traffic.from)));
    line("to", quote(to_string(traffic.to)));
    line("block_mib", static_cast<double>(traffic.block_bytes) / static_cast<double>(kMiB));
    line("queue_blocks", traffic.queue_blocks);
    line("on_us", traffic.on_us);
    line("off_us", traffic.off_us);
    line("begin_us", traffic.begin_us);
    line("end_us", traffic.end_us);
  }
  return text;
}

}  // namespace polypath
