// What each call costs the CPU, on slow_graphs.toml: the figures of its [costs].
#include "base/units.hpp"
#include "graph_calls.hpp"

namespace polypath::sim::test {
namespace {

Rig& rig() {
  static Rig rig(8 * kMiB);
  return rig;
}

TEST(GraphCosts, EachCallTakesWhatTheNodeFileSays) {
  for (const int nodes : {0, 2, 34}) {
    const GraphCalls calls = graph_calls(rig(), nodes);
    EXPECT_NEAR(7, calls.create_us, 1e-6);
    EXPECT_NEAR(3 * nodes, calls.add_us, 1e-6);
    EXPECT_NEAR(280 + 80 * nodes, calls.instantiate_us, 1e-6);
    EXPECT_NEAR(5 * nodes, calls.set_us, 1e-6);
    EXPECT_NEAR(11 + 2 * nodes, calls.launch_us, 1e-6);
  }
}

TEST(GraphCosts, InstantiatesThirtyFourNodesInThreeMs) {
  EXPECT_NEAR(3000, graph_calls(rig(), 34).instantiate_us, 1e-6);
}

}  // namespace
}  // namespace polypath::sim::test
