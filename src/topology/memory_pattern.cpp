#include "topology/memory_pattern.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"

namespace polypath {
namespace {

bool matches(MemoryId id, std::string_view pattern) {
  if (pattern == "gpu*") return id.is_gpu();
  if (pattern == "host*") return id.is_host();
  return to_string(id) == pattern;
}

}  // namespace

std::vector<MemoryId> match_memories(const Node& node, const std::vector<std::string>& patterns) {
  const std::vector<MemoryId> all = node.memories();
  std::vector<MemoryId> matched;
  for (const std::string& pattern : patterns) {
    bool any = false;
    for (const MemoryId id : all) {
      if (!matches(id, pattern)) continue;
      any = true;
      if (std::find(matched.begin(), matched.end(), id) == matched.end()) matched.push_back(id);
    }
    if (!any) {
      throw InvalidArgument(fmt::format(
          "'{}' names no memory of this node; allowed: gpu*, host*, gpu0 to gpu{}, host0 to host{}",
          pattern, node.gpus.size() - 1, node.hosts.size() - 1));
    }
  }
  return matched;
}

}  // namespace polypath
