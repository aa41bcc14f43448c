#include "collectives/plan/link_rates.hpp"

#include <algorithm>
#include <limits>

namespace polypath {
namespace {

/// A resource is full where less than this part of it is left: rounding.
constexpr double kFull = 1 + 1e-9;

}  // namespace

LinkRates::LinkRates(const Node& node)
    : links_(node.links),
      ports_(node.ports),
      copies_(node.links.size(), 0),
      shared_(node.links.size(), 0),
      gbps_(node.links.size(), 0),
      resources_(node.links.size() + node.ports.size()) {}

void LinkRates::clear() {
  for (const int link : used_) copies_[static_cast<std::size_t>(link)] = 0;
  used_.clear();
}

void LinkRates::add(int link) {
  if (copies_[static_cast<std::size_t>(link)]++ == 0) used_.push_back(link);
}

void LinkRates::share() {
  if (copies_ == shared_) return;
  shared_ = copies_;
  compute();
}

void LinkRates::compute() {
  used_ports_.clear();
  for (const int index : used_) {
    const auto link = static_cast<std::size_t>(index);
    gbps_[link] = 0;
    resources_[link] = {links_[link].gbps, copies_[link]};
    for (const int shared : links_[link].ports) port(shared).rising = 0;
  }
  for (const int index : used_) {
    const auto link = static_cast<std::size_t>(index);
    for (const int shared : links_[link].ports) {
      Resource& of_port = port(shared);
      if (of_port.rising == 0) {
        of_port.left_gbps = ports_[static_cast<std::size_t>(shared)].gbps;
        used_ports_.push_back(shared);
      }
      of_port.rising += copies_[link];
    }
  }
  rising_ = used_;
  while (!rising_.empty()) {
    // The resource that fills first decides how far all rise.
    double step = std::numeric_limits<double>::infinity();
    const auto limit = [&](const Resource& resource) {
      if (resource.rising > 0) step = std::min(step, resource.left_gbps / resource.rising);
    };
    for (const int link : rising_) limit(resources_[static_cast<std::size_t>(link)]);
    for (const int shared : used_ports_) limit(port(shared));
    const auto fill = [&](Resource& resource) {
      const double taken = step * resource.rising;
      const bool is_full = resource.rising > 0 && resource.left_gbps <= taken * kFull;
      resource.left_gbps = is_full ? -1 : resource.left_gbps - taken;
    };
    for (const int link : rising_) {
      gbps_[static_cast<std::size_t>(link)] += step;
      fill(resources_[static_cast<std::size_t>(link)]);
    }
    for (const int shared : used_ports_)
      if (port(shared).rising > 0) fill(port(shared));
    std::erase_if(rising_, [&](int index) {
      const auto link = static_cast<std::size_t>(index);
      bool is_full = resources_[link].left_gbps < 0;
      for (const int shared : links_[link].ports) is_full = is_full || port(shared).left_gbps < 0;
      if (!is_full) return false;
      for (const int shared : links_[link].ports) port(shared).rising -= copies_[link];
      return true;
    });
  }
}

}  // namespace polypath
