// Routes: the ways from one memory to another, of one leg (direct) or two (staged).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "topology/node.hpp"

namespace polypath {

enum class RouteKind : std::uint8_t {
  direct,    ///< the link from source to destination: one copy
  via_gpu,   ///< staged in the memory of another GPU
  via_host,  ///< staged in pinned host memory
};
std::string_view to_string(RouteKind kind) noexcept;

struct Route {
  RouteKind kind = RouteKind::direct;
  MemoryId via;           ///< the staging memory; meaningless for a direct route
  std::vector<int> legs;  ///< indices into Node::links, in the order of the data

  [[nodiscard]] bool staged() const noexcept { return kind != RouteKind::direct; }
  friend bool operator==(const Route&, const Route&) = default;
};

/// "direct", "via gpu2", "via host0".
std::string to_string(const Route& route);

/// What a caller, the settings, or the state of the engine allow.
struct RouteFilter {
  bool direct = true;
  bool gpu = true;
  bool host = true;
  std::vector<MemoryId> without;  ///< staging memories that may not be used
  /// Processes that copy between host memory and GPUs of this node: each has its share of the GPUs
  /// that stage such copies.
  int ranks = 1;

  friend bool operator==(const RouteFilter&, const RouteFilter&) = default;
};

/// All routes from `src` to `dst` that `filter` allows, the direct one first, then via GPUs, then
/// via host memories, each in the order of the index: the order in which ties are broken. Staged
/// routes use no link of type bounce. Empty when src == dst.
///
/// On a node of more than four GPUs, R ranks divide the GPUs that stage copies between host memory
/// and GPUs: those of GPU g are staged on GPUs whose number is g modulo R. With a rank on every GPU
/// there are none: each PCIe link has its own copies, and a context of every rank on every GPU
/// would gain nothing.
std::vector<Route> find_routes(const Node& node, MemoryId src, MemoryId dst,
                               const RouteFilter& filter);

}  // namespace polypath
