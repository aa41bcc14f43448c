// Upper bounds of a collective's rate on its node, for people: linear programs, which take
// milliseconds and depend on the ranks and the operation alone. A caller that only runs a plan
// needs none of them.
#pragma once

#include <optional>

#include "collectives/plan/algorithm.hpp"
#include "collectives/plan/trees.hpp"

namespace polypath {

/// Each bound is computed when it is first asked for. GB/s. `node` and `request` must outlive this.
/// Not thread-safe.
class CollectiveBounds {
 public:
  CollectiveBounds(const Node& node, const CollectiveRequest& request)
      : node_(node), request_(request) {}

  /// Bus bandwidth of any algorithm: all trees, those through host memory included.
  double bus_gbps();
  /// ... of trees over links between GPUs alone.
  double link_bus_gbps();
  /// ... of the trees that `algorithm` is made of; `ring`: its ranks in the order of the hops.
  double bus_gbps(Algorithm algorithm, std::span<const int> ring);
  /// The part of link_bus_gbps() that host memory could add.
  double host_gain();

 private:
  [[nodiscard]] double limit(TreeFilter filter) const;
  [[nodiscard]] double ring_gbps(std::span<const int> ring) const;

  const Node& node_;
  const CollectiveRequest& request_;
  std::optional<double> all_;
  std::optional<double> links_;
  std::optional<double> stars_;
};

}  // namespace polypath
