#include "topology/node_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "base/error.hpp"
#include "base/units.hpp"
#include "topology/cost_fields.hpp"
#include "topology/memory_pattern.hpp"
#include "topology/toml_table.hpp"

namespace polypath {
namespace {

constexpr Range kSchema{1, 1};
constexpr Range kGpuCount{1, 64};
constexpr Range kMemoryGib{0, 1 << 20};
constexpr Range kPcieGeneration{0, 7};
constexpr Range kPcieWidth{0, 32};
constexpr Range kNuma{0, 4095};
constexpr Range kGbps{0.001, 1e5};
constexpr Range kNominalGbps{0, 1e5};
constexpr Range kWidth{0, 1024};
constexpr Range kBlockMib{1.0 / 1024, 1 << 20};
constexpr Range kQueueBlocks{1, 1024};
constexpr Range kTrafficUs{0, 1e12};

constexpr std::array kLinkTypes{LinkType::nvlink, LinkType::nvswitch, LinkType::pcie, LinkType::c2c,
                                LinkType::bounce};

std::uint64_t to_bytes(double gib) {
  return static_cast<std::uint64_t>(std::llround(gib * static_cast<double>(kGiB)));
}

LinkType read_link_type(TomlTable& table) {
  const std::string text = table.text("type");
  for (const LinkType type : kLinkTypes)
    if (to_string(type) == text) return type;
  table.fail("type", "must be nvlink, nvswitch, pcie, c2c or bounce");
}

void read_host(TomlTable table, Node& node) {
  HostMemory host;
  host.numa = table.integer("numa", kNuma);
  host.memory_bytes = to_bytes(table.number("memory_gib", kMemoryGib));
  table.finish();
  for (const HostMemory& other : node.hosts)
    if (other.numa == host.numa) table.fail("numa", "is the number of another [[host]] as well");
  node.hosts.push_back(host);
}

/// `numa` numbers of the operating system -> index into node.hosts.
int host_index(const TomlTable& table, const Node& node, int numa) {
  for (std::size_t i = 0; i < node.hosts.size(); ++i)
    if (node.hosts[i].numa == numa) return static_cast<int>(i);
  table.fail("numa", fmt::format("there is no [[host]] with numa = {}", numa));
}

void read_gpus(TomlTable table, Node& node) {
  const int count = table.integer("count", kGpuCount, 1);
  Gpu gpu;
  gpu.name = table.text("name");
  gpu.uuid = table.text("uuid", "");
  gpu.pci = table.text("pci", "");
  gpu.memory_bytes = to_bytes(table.number("memory_gib", kMemoryGib));
  gpu.pcie_generation = table.integer("pcie_generation", kPcieGeneration, 0);
  gpu.pcie_width = table.integer("pcie_width", kPcieWidth, 0);
  const std::vector<int> numas = table.integers("numa", kNuma, count, node.hosts.front().numa);
  table.finish();
  for (const int numa : numas) {
    gpu.numa = host_index(table, node, numa);
    node.gpus.push_back(gpu);
  }
}

std::vector<int> read_port_names(TomlTable& table, const Node& node) {
  std::vector<int> ports;
  if (!table.has("ports")) return ports;
  for (const std::string& name : table.texts("ports")) {
    const auto port = std::find_if(node.ports.begin(), node.ports.end(),
                                   [&](const Port& other) { return other.name == name; });
    if (port == node.ports.end())
      table.fail("ports", fmt::format("there is no [[port]] '{}' without from and to", name));
    ports.push_back(static_cast<int>(port - node.ports.begin()));
  }
  return ports;
}

void read_links(TomlTable table, Node& node) {
  Link link;
  const Selection selection = read_selection(table, node);
  link.type = read_link_type(table);
  link.gbps = table.number("gbps", kGbps);
  link.nominal_gbps = table.number("nominal_gbps", kNominalGbps, 0);
  link.width = table.integer("width", kWidth, 0);
  link.ports = read_port_names(table, node);
  table.text("source", "");
  table.finish();

  const std::size_t first = node.links.size();
  const auto add = [&](MemoryId from, MemoryId to) {
    if (const auto other = node.find_link(from, to)) {
      if (static_cast<std::size_t>(*other) >= first) return;  // matched twice by this entry
      table.fail(fmt::format("the link {} to {} exists already", to_string(from), to_string(to)));
    }
    link.from = from;
    link.to = to;
    node.links.push_back(link);
  };
  for (const auto& [from, to] : selection.pairs) add(from, to);
  if (selection.both_directions)
    for (const auto& [from, to] : selection.pairs) add(to, from);
}

enum class Per { all, from, to };

Per read_per(TomlTable& table) {
  const std::string text = table.text("per", "all");
  if (text == "all") return Per::all;
  if (text == "from") return Per::from;
  if (text == "to") return Per::to;
  table.fail("per", "must be from, to or all");
}

std::string port_name(const std::string& name, Per per, MemoryId from, MemoryId to) {
  switch (per) {
    case Per::all: return name;
    case Per::from: return fmt::format("{}.{}", name, to_string(from));
    case Per::to: return fmt::format("{}.{}", name, to_string(to));
  }
  return name;
}

int add_port(const TomlTable& table, Node& node, const std::string& name, double gbps) {
  for (const Port& other : node.ports)
    if (other.name == name) table.fail("name", fmt::format("there is a port '{}' already", name));
  node.ports.push_back({name, gbps});
  return static_cast<int>(node.ports.size()) - 1;
}

/// A port that links name by themselves: it has no patterns.
void read_named_port(TomlTable table, Node& node) {
  if (table.has("from") || table.has("to")) return;
  const std::string name = table.text("name");
  add_port(table, node, name, table.number("gbps", kGbps));
  table.text("source", "");
  table.finish();
}

/// A port, or one a memory, for the links that its patterns match.
void read_pattern_port(TomlTable table, Node& node) {
  if (!table.has("from") && !table.has("to")) return;
  const std::string name = table.text("name");
  const double gbps = table.number("gbps", kGbps);
  const Selection selection = read_selection(table, node);
  const Per per = read_per(table);
  table.text("source", "");
  table.finish();

  std::map<std::string, int> ports;  // of this entry: name -> index
  const auto add = [&](MemoryId from, MemoryId to, const std::string& port) {
    const auto index = node.find_link(from, to);
    if (!index) return;
    if (!ports.contains(port)) ports[port] = add_port(table, node, port, gbps);
    std::vector<int>& shared = node.links[static_cast<std::size_t>(*index)].ports;
    if (std::find(shared.begin(), shared.end(), ports[port]) == shared.end())
      shared.push_back(ports[port]);
  };
  for (const auto& [from, to] : selection.pairs) {
    const std::string port = port_name(name, per, from, to);
    add(from, to, port);
    if (selection.both_directions) add(to, from, port);
  }
  if (ports.empty()) table.fail("no link matches its from and to");
}

void read_traffic(TomlTable table, Node& node) {
  const auto memory = [&](std::string_view key) {
    try {
      const MemoryId id = parse_memory(table.text(key));
      if (node.contains(id)) return id;
    } catch (const InvalidArgument&) {
      // Says less than the message below.
    }
    table.fail(key, "must be a memory of this node, such as gpu0 or host0");
  };
  BackgroundTraffic traffic;
  traffic.from = memory("from");
  traffic.to = memory("to");
  traffic.block_bytes = static_cast<std::uint64_t>(
      std::llround(table.number("block_mib", kBlockMib, 64) * static_cast<double>(kMiB)));
  traffic.queue_blocks = table.integer("queue_blocks", kQueueBlocks, 1);
  traffic.on_us = table.number("on_us", kTrafficUs, 0);
  traffic.off_us = table.number("off_us", kTrafficUs, 0);
  traffic.begin_us = table.number("begin_us", kTrafficUs, 0);
  traffic.end_us = table.number("end_us", kTrafficUs, 0);
  table.text("source", "");
  table.finish();
  node.traffic.push_back(traffic);
}

/// The tables of a profile (tune/profile.hpp), which the parts of the library read that own them.
void skip_profile(TomlTable& root, std::span<const std::string_view> tables) {
  root.section("end");
  if (!root.has("profile")) return;
  root.section("profile");
  if (tables.empty()) root.skip_entries();
  for (const std::string_view table : tables) root.entries(table);
}

Node read_node(TomlTable root, std::span<const std::string_view> profile_tables = {}) {
  Node node;
  root.integer("schema", kSchema);
  node.name = root.text("name");
  node.title = root.text("title", "");
  node.source = root.text("source", "");
  TomlTable costs = root.section("costs");
  for (const CostField& field : kCostFields)
    node.costs.*field.member =
        costs.number(field.name, {field.least, field.most}, node.costs.*field.member);
  costs.finish();

  for (TomlTable& host : root.entries("host")) read_host(host, node);
  if (node.hosts.empty()) root.fail("host", "at least one [[host]] is needed");
  for (TomlTable& gpu : root.entries("gpu")) read_gpus(gpu, node);
  if (node.gpus.empty()) root.fail("gpu", "at least one [[gpu]] is needed");
  const std::vector<TomlTable> ports = root.entries("port");
  for (const TomlTable& port : ports) read_named_port(port, node);
  for (TomlTable& link : root.entries("link")) read_links(link, node);
  for (const TomlTable& port : ports) read_pattern_port(port, node);
  for (TomlTable& traffic : root.entries("traffic")) read_traffic(traffic, node);
  skip_profile(root, profile_tables);
  root.finish();
  try {
    validate(node);
  } catch (const InvalidArgument& error) {
    root.fail(error.what());
  }
  return node;
}

}  // namespace

Node read_node_file(const std::filesystem::path& file,
                    std::span<const std::string_view> profile_tables) {
  const std::string name = file.string();
  try {
    const toml::table table = toml::parse_file(name);
    return read_node(TomlTable(table, name, "node"), profile_tables);
  } catch (const toml::parse_error& error) {
    throw InvalidArgument(
        fmt::format("{}:{}: {}", name, error.source().begin.line, error.description()));
  }
}

Node read_node_text(std::string_view text) {
  const std::string name = "node";
  try {
    const toml::table table = toml::parse(text);
    return read_node(TomlTable(table, name, "node"));
  } catch (const toml::parse_error& error) {
    throw InvalidArgument(
        fmt::format("{}:{}: {}", name, error.source().begin.line, error.description()));
  }
}

}  // namespace polypath
