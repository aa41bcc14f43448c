#include "tune/measure_links.hpp"

#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "node_fixture.hpp"

namespace polypath {
namespace {

class MeasureTest : public test::NodeTest {
 protected:
  /// The simulated node is exact at any size.
  [[nodiscard]] MeasureOptions options() const {
    return simulated_ ? MeasureOptions{.bytes = 4 * kMiB, .repetitions = 1} : MeasureOptions{};
  }
};

/// The largest relative error of a measured capacity; the simulated node has the true one.
constexpr double kTolerance = 0.03;

/// Starts from wrong capacities, so that none can be right by staying as it was.
Node with_wrong_capacities(Node node) {
  for (Link& link : node.links) link.gbps = 1;
  for (Port& port : node.ports) port.gbps = 1;
  return node;
}

std::vector<int> links_of(const Node& node, int port) {
  std::vector<int> links;
  for (std::size_t i = 0; i < node.links.size(); ++i)
    for (const int other : node.links[i].ports)
      if (other == port) links.push_back(static_cast<int>(i));
  return links;
}

TEST_F(MeasureTest, FindsTheCapacitiesThatTheNodeObeys) {
  if (!simulated_) GTEST_SKIP() << "a real node's capacities are not known";
  const Node measured = measure_capacities(*driver_, with_wrong_capacities(file_), {}, options());
  validate(measured);
  ASSERT_EQ(measured.links.size(), file_.links.size());
  for (std::size_t i = 0; i < file_.links.size(); ++i) {
    const Link& link = file_.links[i];
    EXPECT_NEAR(measured.links[i].gbps, link.gbps, kTolerance * link.gbps)
        << to_string(link.from) << " to " << to_string(link.to);
  }
  ASSERT_GE(measured.ports.size(), file_.ports.size());
  for (std::size_t i = 0; i < file_.ports.size(); ++i)
    EXPECT_NEAR(measured.ports[i].gbps, file_.ports[i].gbps, kTolerance * file_.ports[i].gbps)
        << file_.ports[i].name;

  EXPECT_NEAR(measured.costs.copy_issue_us, file_.costs.copy_issue_us, 0.1);
  EXPECT_NEAR(measured.costs.call_us, file_.costs.call_us, 0.1);
  EXPECT_NEAR(measured.costs.copy_start_us, file_.costs.copy_start_us, 0.5);
  EXPECT_NEAR(measured.costs.copy_gap_us, file_.costs.copy_gap_us, 0.5);
  EXPECT_NEAR(measured.costs.event_us, file_.costs.event_us, 0.5);
}

TEST_F(MeasureTest, DiscoveredNode_GetsUsableCapacities) {
  std::vector<std::size_t> done;
  std::size_t total = 0;
  const Node measured = measure_capacities(
      *driver_, discovered_,
      [&](std::size_t step, std::size_t steps, const std::string& what) {
        EXPECT_FALSE(what.empty());
        done.push_back(step);
        total = steps;
      },
      options());
  validate(measured);
  for (std::size_t i = 0; i < done.size(); ++i) EXPECT_EQ(done[i], i);
  EXPECT_EQ(done.size(), total + 1);

  // No port carries more than its links do alone, or (if it is more than noise) less than one of
  // the links that fill it.
  for (std::size_t port = 0; port < measured.ports.size(); ++port) {
    double sum = 0;
    double largest = 0;
    for (const int i : filling_links(measured, static_cast<int>(port))) {
      const double gbps = measured.links[static_cast<std::size_t>(i)].gbps;
      sum += gbps;
      largest = std::max(largest, gbps);
    }
    EXPECT_LT(measured.ports[port].gbps, 1.1 * sum) << measured.ports[port].name;
    EXPECT_GT(measured.ports[port].gbps, 0.7 * largest) << measured.ports[port].name;
  }
}

TEST_F(MeasureTest, PlainNode_GetsThePortsOfItsKind) {
  Node node = discovered_;
  node.ports.clear();
  for (Link& link : node.links) link.ports.clear();
  add_shared_ports(node);
  validate(node);
  std::map<std::string, std::size_t> links;
  for (std::size_t port = 0; port < node.ports.size(); ++port)
    links[node.ports[port].name] = links_of(node, static_cast<int>(port)).size();
  const std::size_t gpus = node.gpus.size();
  // With one GPU these are the links of its own port.
  EXPECT_EQ(links[gpus > 1 ? "host.host0" : "pcie.gpu0"], 2 * gpus);
  EXPECT_EQ(links.count("host-read.host0"), gpus > 1 ? 1u : 0u);
  const Node once = node;
  add_shared_ports(node);
  EXPECT_EQ(node, once);
}

TEST_F(MeasureTest, PortsWithTheSameLinksAreNotAddedAgain) {
  if (!simulated_) GTEST_SKIP() << "needs a node file with all its ports";
  Node node = file_;
  add_shared_ports(node);
  for (std::size_t a = 0; a < node.ports.size(); ++a)
    for (std::size_t b = std::max(a + 1, file_.ports.size()); b < node.ports.size(); ++b)
      EXPECT_NE(links_of(node, static_cast<int>(a)), links_of(node, static_cast<int>(b)))
          << node.ports[a].name << " " << node.ports[b].name;
}

TEST_F(MeasureTest, MoreGpusThanTheDriverHasIsAnError) {
  Node node = discovered_;
  node.gpus.push_back(node.gpus.back());
  EXPECT_THROW(measure_capacities(*driver_, node, {}, options()), NoDevice);
}

}  // namespace
}  // namespace polypath
