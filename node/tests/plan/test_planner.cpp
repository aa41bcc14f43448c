// What a planner computes on a caller's thread, what it leaves to another, and what serves
// meanwhile.
#include "plan/planner.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <thread>

#include "base/units.hpp"
#include "plan/pair_class.hpp"
#include "plan_inputs.hpp"
#include "topology/node_file.hpp"

namespace polypath {
namespace {

Request between(int src, int dst, std::uint64_t bytes = 64 * kMiB) {
  return {MemoryId::gpu(src), MemoryId::gpu(dst), bytes};
}

/// "direct 35422208/1 via gpu2 ...", a transfer after another.
std::string table(const PreparedPlan& prepared) {
  std::string line;
  for (const TransferPlan& transfer : prepared.plan.transfers) {
    line += to_string(transfer.request.src) + ">" + to_string(transfer.request.dst) + ":";
    for (const RouteShare& share : transfer.routes)
      line += " " + to_string(share.route) + " " + std::to_string(share.bytes) + "/" +
              std::to_string(share.chunks);
    line += "; ";
  }
  return line;
}

/// A planner whose other thread is the test: it carries out what was left to it when it says so.
class PlannerTest : public testing::Test {
 protected:
  explicit PlannerTest(Node node = mesh_node())
      : node_(std::move(node)), planner_(inputs(), [this](std::function<void()> task) {
          if (refuses_) return false;
          tasks_.push_back(std::move(task));
          return true;
        }) {}

  [[nodiscard]] PlanInputs inputs() const {
    PlanInputs inputs;
    inputs.node = node_;
    return inputs;
  }
  /// The table of a planner that remembers nothing else.
  [[nodiscard]] std::string exact(const std::vector<Request>& requests, std::uint64_t without = 0,
                                  const std::vector<Request>& concurrent = {}) const {
    return table(*Planner(inputs(), {}).plan(requests, without, concurrent));
  }
  std::shared_ptr<const PreparedPlan> serve(const std::vector<Request>& requests,
                                            std::uint64_t without = 0,
                                            const std::vector<Request>& concurrent = {}) {
    return planner_.serve(requests, without, concurrent);
  }
  void carry_out() {
    while (!tasks_.empty()) {
      const auto task = std::move(tasks_.front());
      tasks_.pop_front();
      task();
    }
  }
  void expect_no_route_sets_computed_here() const {
    EXPECT_EQ(planner_.counts().route_sets_in_serve, 0u);
  }

  Node node_;
  std::deque<std::function<void()>> tasks_;
  bool refuses_ = false;
  Planner planner_;
};

TEST_F(PlannerTest, UnknownPair_IsNativeUntilComputed) {
  const std::vector<Request> request{between(0, 1)};
  const auto first = serve(request);
  EXPECT_TRUE(first->provisional);
  EXPECT_TRUE(first->plan.native());
  EXPECT_GT(first->plan.native_us, 0);
  ASSERT_EQ(first->schedule.order.size(), 1u);
  EXPECT_EQ(first->schedule.transfers.front()->steps.front().bytes, 64 * kMiB);
  EXPECT_TRUE(serve(request)->provisional);
  EXPECT_EQ(tasks_.size(), 1u) << "asked for once";
  EXPECT_EQ(planner_.counts().plans_in_serve, 0u);
  carry_out();
  const auto then = serve(request);
  EXPECT_FALSE(then->provisional);
  EXPECT_EQ(table(*then), exact(request));
  EXPECT_FALSE(then->plan.native());
  EXPECT_EQ(then, serve(request));
  expect_no_route_sets_computed_here();
  EXPECT_EQ(planner_.counts().later, 1u);
}

TEST_F(PlannerTest, AnotherSizeOfAKnownPairIsPlannedAtOnce) {
  serve({between(0, 1)});
  carry_out();
  for (std::uint64_t bytes = kMiB; bytes < 600 * kMiB; bytes = bytes * 3 / 2 + 12345) {
    const auto served = serve({between(0, 1, bytes)});
    EXPECT_FALSE(served->provisional);
    EXPECT_EQ(table(*served), exact({between(0, 1, bytes)}));
  }
  EXPECT_TRUE(tasks_.empty());
  expect_no_route_sets_computed_here();
}

/// On a stream without work the CPU's time before the first copy delays a split transfer. Where
/// costs were measured, plans that promise less than that time are native there.
TEST(Planner, SmallGain_IsNativeOnIdleStream) {
  PlanInputs inputs;
  inputs.node = known_node("hgx-h200-x4");
  inputs.node.costs.staged_fixed_us = 32;
  Planner planner(inputs, {});
  int split = 0;
  int native_when_idle = 0;
  for (std::uint64_t bytes = 32 * kMiB; bytes <= 256 * kMiB; bytes += 16 * kMiB) {
    const std::vector<Request> request{between(0, 1, bytes)};
    const auto plan = planner.plan(request, 0);
    if (plan->plan.native()) continue;
    const double gain_us = plan->plan.native_us - plan->plan.predicted_us;
    if (gain_us >= 16) {
      EXPECT_EQ(plan->on_idle_stream, nullptr) << bytes;
      ++split;
      continue;
    }
    ASSERT_NE(plan->on_idle_stream, nullptr) << bytes;
    EXPECT_TRUE(plan->on_idle_stream->plan.native());
    EXPECT_FALSE(plan->on_idle_stream->provisional);
    ++native_when_idle;
  }
  EXPECT_GT(split, 0);
  EXPECT_GT(native_when_idle, 0);
  // Where nothing was measured, predictions are compared as they are.
  inputs.node.costs.staged_fixed_us = 0;
  const std::vector<Request> request{between(0, 1, 64 * kMiB)};
  EXPECT_EQ(Planner(inputs, {}).plan(request, 0)->on_idle_stream, nullptr);
}

TEST_F(PlannerTest, ExcludedMemory_HasItsOwnRouteSets) {
  serve({between(0, 1)});
  carry_out();
  const std::uint64_t without = planner_.bit(MemoryId::gpu(2));
  EXPECT_TRUE(serve({between(0, 1)}, without)->provisional);
  carry_out();
  EXPECT_EQ(table(*serve({between(0, 1)}, without)), exact({between(0, 1)}, without));
  expect_no_route_sets_computed_here();
}

TEST_F(PlannerTest, Concurrent_LonePlanServesMeanwhile) {
  serve({between(0, 1)});
  carry_out();
  const auto alone = serve({between(0, 1)});
  const std::vector<Request> concurrent{between(0, 2, 0), between(1, 3, 0)};
  EXPECT_EQ(serve({between(0, 1)}, 0, concurrent), alone);
  carry_out();
  const auto then = serve({between(0, 1)}, 0, concurrent);
  EXPECT_EQ(table(*then), exact({between(0, 1)}, 0, concurrent));
  EXPECT_NE(table(*then), table(*alone));
  // The route sets serve all sizes: the other transfers are as large.
  const auto larger = serve({between(0, 1, 128 * kMiB)}, 0, concurrent);
  EXPECT_EQ(table(*larger), exact({between(0, 1, 128 * kMiB)}, 0, concurrent));
  EXPECT_TRUE(tasks_.empty());
  expect_no_route_sets_computed_here();
}

TEST_F(PlannerTest, UnknownGroup_IsNativeUntilComputed) {
  const std::vector<Request> ring{between(0, 1), between(1, 2), between(2, 3), between(3, 0)};
  const auto first = serve(ring);
  EXPECT_TRUE(first->plan.native());
  EXPECT_EQ(first->plan.transfers.size(), 4u);
  EXPECT_EQ(first->schedule.order.size(), 4u);
  carry_out();
  EXPECT_EQ(table(*serve(ring)), exact(ring));
  EXPECT_FALSE(serve(ring)->plan.native());
  expect_no_route_sets_computed_here();
}

TEST_F(PlannerTest, GroupsOfChangingSizesHaveFewRouteSets) {
  Random random(7);
  for (int i = 0; i < 300; ++i) {
    const std::vector<Request> pair{between(0, 1, 16 * kMiB + random() % (16 * kMiB)),
                                    between(2, 3, 16 * kMiB + random() % (16 * kMiB))};
    serve(pair);
    carry_out();
    EXPECT_EQ(table(*serve(pair)), exact(pair)) << "whatever was computed before";
  }
  EXPECT_LE(planner_.counts().kept_route_sets, 8u);
  EXPECT_LE(planner_.counts().later, 8u);
  expect_no_route_sets_computed_here();
}

TEST_F(PlannerTest, RefusedTask_IsRequestedAgain) {
  refuses_ = true;
  EXPECT_TRUE(serve({between(0, 1)})->provisional);
  refuses_ = false;
  EXPECT_TRUE(serve({between(0, 1)})->provisional);
  EXPECT_EQ(tasks_.size(), 1u);
  carry_out();
  EXPECT_FALSE(serve({between(0, 1)})->provisional);
}

TEST_F(PlannerTest, ExactPlan_IsComputedByTheCaller) {
  EXPECT_EQ(table(*planner_.plan(std::vector{between(0, 1)}, 0)), exact({between(0, 1)}));
  EXPECT_FALSE(serve({between(0, 1)})->provisional) << "known from then on";
  {
    const Planner::Exact all(planner_);
    EXPECT_EQ(table(*serve({between(0, 2)})), exact({between(0, 2)}));
  }
  EXPECT_TRUE(tasks_.empty());
  EXPECT_TRUE(serve({between(0, 3)})->provisional);
}

TEST_F(PlannerTest, BackgroundTask_BlocksNoCaller) {
  // The other thread computes while this one asks, in any order: under the thread sanitizer as
  // well.
  serve({between(0, 1)});
  serve({between(0, 1), between(1, 0)});
  std::jthread other([&] { carry_out(); });
  for (int i = 0; i < 100; ++i) {
    planner_.plan(std::vector{between(2, 3, kMiB + static_cast<std::uint64_t>(i))}, 0);
    static_cast<void>(planner_.counts());
  }
  planner_.use(node_);
  other.join();
  EXPECT_EQ(table(*planner_.plan(std::vector{between(0, 1)}, 0)), exact({between(0, 1)}));
}

TEST_F(PlannerTest, NodeChangedMeanwhile_DropsTaskResult) {
  serve({between(0, 1)});
  Node slow = node_;
  for (Link& link : slow.links) link.gbps /= 4;
  const auto task = std::move(tasks_.front());
  tasks_.clear();
  planner_.use(slow);
  task();
  node_ = slow;
  EXPECT_EQ(table(*planner_.plan(std::vector{between(0, 1)}, 0)), exact({between(0, 1)}));
}

TEST_F(PlannerTest, MemoryIsBounded) {
  serve({between(0, 1)});
  carry_out();
  for (std::uint64_t i = 0; i < 10'000; ++i) serve({between(0, 1, 8 * kMiB + 4096 * i)});
  const auto counts = planner_.counts();
  EXPECT_LE(counts.kept_copies, 100'000u);
  EXPECT_GT(counts.kept_plans, 500u);
  EXPECT_LT(counts.kept_plans, 5'000u);
  // The latest is known, the first is not.
  const auto before = planner_.counts().plans_in_serve;
  serve({between(0, 1, 8 * kMiB + 4096 * 9'999)});
  EXPECT_EQ(planner_.counts().plans_in_serve, before);
  serve({between(0, 1, 8 * kMiB)});
  EXPECT_EQ(planner_.counts().plans_in_serve, before + 1);
}

TEST_F(PlannerTest, TunedVariants_AreComputedInBackground) {
  TunedTransfer entry;
  entry.pair = pair_class(node_, MemoryId::gpu(0), MemoryId::gpu(1));
  entry.choice = {64 * kMiB, {{RouteKind::direct, .5, 1}, {RouteKind::via_gpu, .5, 8}}, 0};
  entry.native_gbps = 90;
  entry.measured_gbps = 150;
  TunedTransfer window = entry;
  window.pattern = Pattern::window;
  window.choice.routes[1].chunks = 2;
  planner_.use(std::vector{entry, window});
  serve({between(0, 1)});
  carry_out();
  // A new size: the choice itself at once, what a window does instead later.
  const auto first = serve({between(0, 1, 96 * kMiB)});
  EXPECT_TRUE(first->tuned);
  EXPECT_EQ(first->in_window, nullptr);
  EXPECT_EQ(tasks_.size(), 1u);
  carry_out();
  const auto then = serve({between(0, 1, 96 * kMiB)});
  EXPECT_EQ(table(*then), table(*first));
  ASSERT_NE(then->in_window, nullptr);
  EXPECT_LT(then->in_window->plan.transfers.front().routes.at(1).chunks,
            then->plan.transfers.front().routes.at(1).chunks);
  expect_no_route_sets_computed_here();
}

/// Two islands of two GPUs each, each with its own host memory.
Node islands() {
  Node node;
  node.gpus.resize(4);
  node.hosts.resize(2);
  const auto both = [&](MemoryId a, MemoryId b, LinkType type, double gbps) {
    node.links.push_back({a, b, type, gbps, 0, 0, {}});
    node.links.push_back({b, a, type, gbps, 0, 0, {}});
  };
  for (const int first : {0, 2}) {
    const MemoryId host = MemoryId::host(first / 2);
    both(MemoryId::gpu(first), MemoryId::gpu(first + 1), LinkType::nvlink, 90);
    both(MemoryId::gpu(first), host, LinkType::pcie, 25);
    both(MemoryId::gpu(first + 1), host, LinkType::pcie, 25);
  }
  return node;
}

class PlannerOnIslands : public PlannerTest {
 protected:
  PlannerOnIslands() : PlannerTest(islands()) {}
};

TEST_F(PlannerOnIslands, TransfersThatShareNoLinkDoNotCount) {
  serve({between(0, 1)});
  carry_out();
  const auto alone = serve({between(0, 1)});
  EXPECT_FALSE(alone->plan.native());
  EXPECT_EQ(serve({between(0, 1)}, 0, {between(2, 3, 0), between(3, 2, 0)}), alone);
  EXPECT_EQ(planner_.plan(std::vector{between(0, 1)}, 0, std::vector{between(2, 3, 0)}), alone);
  EXPECT_TRUE(tasks_.empty());
  expect_no_route_sets_computed_here();
}

/// Between GPUs of every known node: serve() computes no route sets, and the size step stays
/// small.
class PlannerOnKnownNodes : public testing::TestWithParam<const char*> {};

TEST_P(PlannerOnKnownNodes, CallersComputeNoRouteSets) {
  PlanInputs inputs;
  inputs.node = read_node_file(std::string(NODES_DIR) + "/" + GetParam() + ".toml");
  std::vector<std::function<void()>> tasks;
  Planner planner(inputs, [&](std::function<void()> task) {
    tasks.push_back(std::move(task));
    return true;
  });
  const int gpus = static_cast<int>(inputs.node.gpus.size());
  std::vector<Request> ring;
  std::vector<Request> back;
  for (int gpu = 0; gpu < gpus; ++gpu) {
    ring.push_back(between(gpu, (gpu + 1) % gpus));
    back.push_back(between((gpu + 1) % gpus, gpu, 0));
  }
  for (int round = 0; round < 2; ++round) {
    for (const Request& request : ring) {
      planner.serve({&request, 1}, 0);
      planner.serve({&request, 1}, 0, back);
    }
    planner.serve(ring, 0);
    for (const auto& task : tasks) task();
    tasks.clear();
  }
  EXPECT_EQ(planner.counts().route_sets_in_serve, 0u);
  Planner exact(inputs, {});
  EXPECT_EQ(table(*planner.serve(ring, 0)), table(*exact.plan(ring, 0)));
  EXPECT_EQ(table(*planner.serve({&ring[0], 1}, 0, back)),
            table(*exact.plan({&ring[0], 1}, 0, back)));
}

INSTANTIATE_TEST_SUITE_P(Nodes, PlannerOnKnownNodes,
                         testing::Values("narval", "mist", "hgx-h200-x4", "dgx-h200-x8"));

}  // namespace
}  // namespace polypath
