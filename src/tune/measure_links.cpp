#include "tune/measure_links.hpp"

#include <fmt/format.h>

#include <array>
#include <vector>

#include "base/error.hpp"
#include "tune/copy_group.hpp"
#include "tune/measure_costs.hpp"
#include "tune/measure_staging.hpp"
#include "tune/shared_ports.hpp"

namespace polypath {

Node measure_capacities(const CudaDriver& driver, const Node& discovered,
                        const ProgressFunction& progress, const MeasureOptions& options) {
  int gpus = 0;
  POLYPATH_CHECK(driver, device_get_count(&gpus));
  if (gpus < static_cast<int>(discovered.gpus.size()))
    throw NoDevice(fmt::format("{} has {} GPUs, the driver {}", discovered.name,
                               discovered.gpus.size(), gpus));

  Node node = discovered;
  add_shared_ports(node);
  const std::size_t total = node.links.size() + node.ports.size() + 3;
  std::size_t done = 0;
  const auto next = [&](const std::string& what) {
    if (progress) progress(done++, total, what);
  };

  next("contexts");
  Lanes lanes(driver, node, options.bytes);
  for (std::size_t i = 0; i < node.links.size(); ++i) {
    Link& link = node.links[i];
    next(fmt::format("{} to {}", to_string(link.from), to_string(link.to)));
    link.gbps = measure_together_gbps(lanes, std::array{static_cast<int>(i)}, options.repetitions);
  }
  for (std::size_t i = 0; i < node.ports.size(); ++i) {
    next(fmt::format("port {}", node.ports[i].name));
    const std::vector<int> links = filling_links(node, static_cast<int>(i));
    if (!links.empty())
      node.ports[i].gbps = measure_together_gbps(lanes, links, options.repetitions);
  }
  next("costs");
  node.costs = measure_costs(lanes, options.repetitions);
  next("staged routes");
  node.costs = measure_staging(lanes, node.costs, options.repetitions);
  next("done");
  return node;
}

}  // namespace polypath
