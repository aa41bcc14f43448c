// The fixture of tests of whole transfers that go as graphs.
#pragma once

#include <deque>
#include <memory>
#include <string>

#include "support/gate.hpp"
#include "support/graph_uses.hpp"
#include "support/simulated_test.hpp"

namespace polypath::test {

class GraphTransferTest : public SimulatedTest {
 protected:
  void SetUp() override {
    SimulatedTest::SetUp();
    if (IsSkipped()) return;
    for (int gpu = 0; gpu < gpus(); ++gpu) context_of(gpu);
    reset_sim_counters(driver());
  }
  /// No graph was disturbed, none is left.
  void TearDown() override {
    if (!IsSkipped()) {
      context_.reset();
      EXPECT_EQ(graph_misuse(driver()), GraphMisuse{});
      EXPECT_EQ(live_objects(driver()).graph_execs, 0u);
      EXPECT_EQ(live_objects(driver()).graphs, 0u);
    }
    SimulatedTest::TearDown();
  }

  /// A context whose transfers go as graphs, `cache` of them kept.
  void make_context(int cache, OptionArguments arguments = {}) {
    arguments.emplace_back("executor", "graph");
    arguments.emplace_back("graph_cache_size", std::to_string(cache));
    context_.reset();
    context_ = std::make_unique<Context>(source_here_ ? *source_here_ : source(), arguments);
  }
  [[nodiscard]] GraphUses uses() const { return uses_of(context_->graph_counts()); }

  /// From GPU 0 to GPU 1, `steps` above a size that is split; each step is another shape.
  [[nodiscard]] Payload::Shape shape(int steps = 0) const {
    return {MemoryId::gpu(0), MemoryId::gpu(1),
            2 * kMiB + 5 + static_cast<std::uint64_t>(steps) * 64 * kKiB, 3, 1};
  }
  /// Copies, waits, compares every byte; as planned, and split.
  void expect_split(const Payload& payload, CUstream stream) {
    const Plan plan = context_->plan({payload.request()});
    ASSERT_FALSE(plan.native());
    const Traffic traffic(*context_);
    copy(*context_, payload.transfer(stream));
    ASSERT_TRUE(completes(stream));
    EXPECT_TRUE(payload.arrived());
    EXPECT_TRUE(traffic.went_as(plan));
  }

  std::optional<NodeSource> source_here_;  ///< instead of the process's node
  std::unique_ptr<Context> context_;
};

}  // namespace polypath::test
