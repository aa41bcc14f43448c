#include "topology/memory_pattern.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace polypath {
namespace {

bool matches(MemoryId id, std::string_view pattern) {
  if (pattern == "gpu*") return id.is_gpu();
  if (pattern == "host*") return id.is_host();
  return to_string(id) == pattern;
}

/// The memories that any of the patterns under `key` names, each once, in the order of the
/// patterns.
std::vector<MemoryId> read_pattern(TomlTable& table, const Node& node, std::string_view key) {
  const std::vector<MemoryId> all = node.memories();
  std::vector<MemoryId> matched;
  for (const std::string& pattern : table.texts(key)) {
    bool any = false;
    for (const MemoryId id : all) {
      if (!matches(id, pattern)) continue;
      any = true;
      if (std::find(matched.begin(), matched.end(), id) == matched.end()) matched.push_back(id);
    }
    if (!any) {
      table.fail(key,
                 fmt::format("'{}' names no memory of this node; allowed: gpu*, host*, gpu0 to "
                             "gpu{}, host0 to host{}",
                             pattern, node.gpus.size() - 1, node.hosts.size() - 1));
    }
  }
  return matched;
}

enum class Distance { any, near, far };

Distance read_distance(TomlTable& table) {
  const std::string text = table.text("distance", "any");
  if (text == "any") return Distance::any;
  if (text == "near") return Distance::near;
  if (text == "far") return Distance::far;
  table.fail("distance", "must be near, far or any");
}

bool has_distance(const Node& node, MemoryId a, MemoryId b, Distance distance) {
  const auto domain = [&node](MemoryId id) {
    return id.is_gpu() ? node.gpus[static_cast<std::size_t>(id.index)].numa : id.index;
  };
  switch (distance) {
    case Distance::any: return true;
    case Distance::near: return domain(a) == domain(b);
    case Distance::far: return domain(a) != domain(b);
  }
  return false;
}

}  // namespace

Selection read_selection(TomlTable& table, const Node& node) {
  Selection selection;
  const std::vector<MemoryId> from = read_pattern(table, node, "from");
  const std::vector<MemoryId> to = read_pattern(table, node, "to");
  selection.both_directions = table.boolean("both_directions", false);
  const Distance distance = read_distance(table);
  for (const MemoryId f : from)
    for (const MemoryId t : to)
      if (f != t && has_distance(node, f, t, distance)) selection.pairs.emplace_back(f, t);
  if (selection.pairs.empty()) table.fail("from, to and distance match no pair of memories");
  return selection;
}

}  // namespace polypath
