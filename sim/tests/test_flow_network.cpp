// Max-min fair sharing, and the time that it takes.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "flow_network.hpp"

namespace polypath::sim {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// One GB/s moves 1000 bytes a microsecond.
FlowDemand demand(double bytes, std::vector<int> resources, double max_gbps = kInfinity) {
  return {bytes, std::move(resources), max_gbps};
}

TEST(FlowNetwork, SingleFlow_GetsTheSmallestCapacity) {
  FlowNetwork network({100, 20, 50}, 0);
  network.start(1, demand(40000, {0, 1, 2}), 0);
  EXPECT_DOUBLE_EQ(20, network.rate_gbps(1));
  EXPECT_DOUBLE_EQ(2, network.next_us());
  EXPECT_EQ(std::vector<FlowNetwork::Id>{1}, network.advance(2));
  EXPECT_EQ(FlowNetwork::kNever, network.next_us());
}

TEST(FlowNetwork, StoppedFlow_LeavesItsShare) {
  FlowNetwork network({100}, 1);
  network.start(1, {1e6, {0}, kInfinity, false}, 0);
  network.start(2, {1e6, {0}, kInfinity, false}, 0);
  EXPECT_DOUBLE_EQ(1e6 - 5 * 50'000, network.stop(1, 5));
  EXPECT_DOUBLE_EQ(0, network.rate_gbps(1));
  EXPECT_DOUBLE_EQ(100, network.rate_gbps(2));
  EXPECT_DOUBLE_EQ(5 + 7.5, network.next_us());
  network.start(3, demand(1e5, {0}), 5);  // moves nothing before 6
  EXPECT_DOUBLE_EQ(1e5, network.stop(3, 5.5));
}

TEST(FlowNetwork, FlowKeepsItsRateLimit) {
  FlowNetwork network({100}, 0);
  network.start(1, demand(1000, {0}, 30), 0);
  network.start(2, demand(1000, {0}), 0);
  EXPECT_DOUBLE_EQ(30, network.rate_gbps(1));
  EXPECT_DOUBLE_EQ(70, network.rate_gbps(2));
}

TEST(FlowNetwork, UnusedCapacity_GoesToOtherFlows) {
  FlowNetwork network({10, 100}, 0);
  network.start(1, demand(1e6, {0}), 0);
  network.start(2, demand(1e6, {0, 1}), 0);
  network.start(3, demand(1e6, {1}), 0);
  EXPECT_DOUBLE_EQ(5, network.rate_gbps(1));
  EXPECT_DOUBLE_EQ(5, network.rate_gbps(2));
  EXPECT_DOUBLE_EQ(95, network.rate_gbps(3));
}

TEST(FlowNetwork, ResourceCrossedTwice_CountsTwice) {
  FlowNetwork network({30}, 0);
  network.start(1, demand(1000, {0, 0}), 0);
  EXPECT_DOUBLE_EQ(15, network.rate_gbps(1));
}

TEST(FlowNetwork, FlowEnd_SpeedsUpOthers) {
  FlowNetwork network({10}, 0);
  network.start(1, demand(10000, {0}), 0);  // 5 GB/s each: ends after 2 us
  network.start(2, demand(50000, {0}), 0);
  EXPECT_DOUBLE_EQ(2, network.next_us());
  EXPECT_EQ(std::vector<FlowNetwork::Id>{1}, network.advance(2));
  EXPECT_DOUBLE_EQ(10, network.rate_gbps(2));
  EXPECT_DOUBLE_EQ(6, network.next_us());  // 10000 bytes are done, 40000 left at 10 GB/s
}

TEST(FlowNetwork, SimultaneousEnds_ComeInIdOrder) {
  FlowNetwork network({12}, 0);
  for (const FlowNetwork::Id id : {7, 3, 5}) network.start(id, demand(4000, {0}), 0);
  EXPECT_EQ((std::vector<FlowNetwork::Id>{3, 5, 7}), network.advance(network.next_us()));
}

TEST(FlowNetwork, StartHaltsOnlyResourcesInUse) {
  FlowNetwork network({10, 10}, 2);
  network.start(1, demand(100000, {0}), 0);
  network.start(2, demand(100000, {1}), 0);
  EXPECT_DOUBLE_EQ(0, network.rate_gbps(1));  // its own hand-over
  EXPECT_TRUE(network.advance(2).empty());
  EXPECT_DOUBLE_EQ(10, network.rate_gbps(1));

  network.start(3, demand(1000, {0}), 2);
  EXPECT_DOUBLE_EQ(0, network.rate_gbps(1));
  EXPECT_DOUBLE_EQ(10, network.rate_gbps(2));
  EXPECT_DOUBLE_EQ(4, network.next_us());
  EXPECT_TRUE(network.advance(4).empty());
  EXPECT_DOUBLE_EQ(5, network.rate_gbps(1));
  EXPECT_DOUBLE_EQ(5, network.rate_gbps(3));
}

/// A port with room to spare makes up for a halt; one that is filled does not.
TEST(FlowNetwork, PortWithRoom_IsNotHalted) {
  for (const double port_gbps : {100.0, 20.0}) {
    const bool is_filled = port_gbps == 20;
    FlowNetwork network({10, 10, {port_gbps, true}}, 2);
    network.start(1, demand(100000, {0, 2}), 0);
    network.advance(2);
    network.start(2, demand(100000, {1, 2}), 2);
    EXPECT_DOUBLE_EQ(is_filled ? 0 : 10, network.rate_gbps(1)) << port_gbps;
    network.advance(4);
    EXPECT_DOUBLE_EQ(10, network.rate_gbps(1)) << port_gbps;
    EXPECT_DOUBLE_EQ(10, network.rate_gbps(2)) << port_gbps;
  }
}

/// Rates are max-min fair exactly when every flow is at its own limit or crosses a full resource on
/// which no flow is faster than it.
TEST(FlowNetwork, RandomSharesAreMaxMinFair) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const auto draw = [&random](int low, int high) {
      return std::uniform_int_distribution(low, high)(random);
    };
    std::vector<Capacity> capacities;
    for (int i = 0; i < 6; ++i) capacities.emplace_back(draw(1, 100));
    FlowNetwork network(capacities, 0);
    std::vector<FlowDemand> flows;
    for (FlowNetwork::Id id = 0; id < 8; ++id) {
      FlowDemand demand{1e6, {}, draw(0, 3) == 0 ? draw(1, 30) : kInfinity};
      for (int resource = 0; resource < 6; ++resource)
        if (draw(0, 2) == 0) demand.resources.push_back(resource);
      if (demand.resources.empty()) demand.resources.push_back(0);
      flows.push_back(demand);
      network.start(id, demand, 0);
    }
    std::vector<double> used(6, 0.0);
    std::vector<double> fastest(6, 0.0);
    for (FlowNetwork::Id id = 0; id < 8; ++id)
      for (const int resource : flows[id].resources) {
        const auto r = static_cast<std::size_t>(resource);
        used[r] += network.rate_gbps(id);
        fastest[r] = std::max(fastest[r], network.rate_gbps(id));
      }
    for (std::size_t r = 0; r < 6; ++r) EXPECT_LE(used[r], capacities[r].gbps * (1 + 1e-9)) << seed;
    for (FlowNetwork::Id id = 0; id < 8; ++id) {
      const double rate = network.rate_gbps(id);
      const bool limited =
          std::any_of(flows[id].resources.begin(), flows[id].resources.end(), [&](int resource) {
            const auto r = static_cast<std::size_t>(resource);
            return used[r] >= capacities[r].gbps * (1 - 1e-6) && rate >= fastest[r] * (1 - 1e-6);
          });
      EXPECT_TRUE(limited || rate >= flows[id].max_gbps * (1 - 1e-9)) << seed << " flow " << id;
    }
  }
}

}  // namespace
}  // namespace polypath::sim
