// What copies over single links get when all move at once and links and ports share themselves
// fairly: as fair_rates() (plan/flow.hpp) for routes of one leg. Memory is used again, since a
// schedule asks some thousand times.
#pragma once

#include <cstddef>
#include <vector>

#include "topology/node.hpp"

namespace polypath {

class LinkRates {
 public:
  /// `node` must outlive it.
  explicit LinkRates(const Node& node);

  /// Forgets the copies.
  void clear();
  /// One more copy over the link, an index into Node::links.
  void add(int link);
  /// Computes the rates of the copies that were added; those of the last call are kept where the
  /// copies are alike.
  void share();
  /// GB/s of each copy over the link, of those that were added before share().
  [[nodiscard]] double gbps(int link) const { return gbps_[static_cast<std::size_t>(link)]; }

 private:
  /// A link or port that copies use.
  struct Resource {
    double left_gbps = 0;
    int rising = 0;  // copies over it whose rate still rises
  };

  void compute();
  Resource& port(int index) { return resources_[links_.size() + static_cast<std::size_t>(index)]; }

  const std::vector<Link>& links_;
  const std::vector<Port>& ports_;
  std::vector<int> copies_;          // of each link
  std::vector<int> used_;            // links with copies, in the order in which they were added
  std::vector<int> shared_;          // copies_ of the rates
  std::vector<double> gbps_;         // of each link
  std::vector<Resource> resources_;  // of each link, then of each port
  std::vector<int> used_ports_;
  std::vector<int> rising_;  // links
};

}  // namespace polypath
