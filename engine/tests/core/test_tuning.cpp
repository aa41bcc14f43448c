// The tuner on a simulated node: what it finds, that it goes on where it was stopped, that edits
// stay, and that plans follow what it found.
#include <gmock/gmock.h>

#include "tuning_test.hpp"

namespace polypath::test {
namespace {

using testing::HasSubstr;
using enum ExecutorKind;

TEST_F(TuningTest, FindsTheBestOfASmallGraphOfRoutes) {
  constexpr std::uint64_t bytes = 8 * kMiB;
  const auto context = open();
  const double predicted_gbps = rate_gbps(bytes, plan_of(*context, bytes).predicted_us);
  // The window comes last; moving 128 MiB for each measurement would take long.
  tune(*context, one_pair(bytes),
       [&] { return context->source().tables.table<TunedTransfer>().entries().size() == 4; });
  // 60 GB/s directly, 60 by GPU 2, 12 by host memory, and these 12 for both ways together.
  struct Row {
    Pattern pattern;
    double limit_gbps;
    double direct;  ///< share at the limit
  };
  for (const auto& [pattern, limit_gbps, direct] :
       {Row{Pattern::one_way, 132, 60. / 132}, Row{Pattern::both_ways, 252, 60. / 126}})
    for (const ExecutorKind executor : {stream, graph}) {
      SCOPED_TRACE(std::string(to_string(pattern)) + ", " + std::string(to_string(executor)));
      const TunedTransfer* const entry = known(*context, pattern, executor, bytes);
      ASSERT_NE(entry, nullptr);
      EXPECT_LE(entry->measured_gbps, limit_gbps);
      EXPECT_GT(entry->measured_gbps, .88 * limit_gbps);
      EXPECT_GT(entry->measured_gbps, 1.5 * entry->native_gbps);
      EXPECT_NEAR(entry->choice.routes.front().share, direct, .05);
      EXPECT_FALSE(entry->edited);
      EXPECT_GT(entry->tried, 5);
    }
  EXPECT_GE(known(*context, Pattern::one_way, stream, bytes)->measured_gbps, .98 * predicted_gbps);
}

TEST_F(TuningTest, LocalSearchComesNearTheWholeGrid) {
  TuningRequest request = one_pair(kMiB);
  request.pairs.front().dst = MemoryId::host(0);
  const auto local = open({{"profile", (folder_.path() / "local.toml").string()}});
  tune(*local, request);
  const auto whole = open();
  request.exhaustive = true;
  request.budget_s = 1e-9;  // does not count
  const Reports reports = tune(*whole, request);
  EXPECT_FALSE(reports.result.stopped);
  EXPECT_EQ(whole->source().tables.table<TunedTransfer>().entries().size(), 6u);
  for (const TunedTransfer& entry : whole->source().tables.table<TunedTransfer>().entries()) {
    const TunedTransfer* const other = local->source().tables.table<TunedTransfer>().find(entry);
    ASSERT_NE(other, nullptr);
    EXPECT_GT(other->measured_gbps, .95 * entry.measured_gbps)
        << to_string(entry.pattern) << ", " << to_string(entry.executor);
    EXPECT_LT(other->tried * 3, entry.tried);
  }
}

TEST_F(TuningTest, PlansFollowItAndTransfersGoThatWay) {
  const auto context = open();
  const std::string before = table(plan_of(*context));
  tune(*context, one_pair());
  const TunedTransfer* const entry =
      find_choice(context->source().tables.table<TunedTransfer>().entries(), Pattern::one_way,
                  kClass, kBytes, std::nullopt);
  ASSERT_NE(entry, nullptr);
  const Plan plan = plan_of(*context);
  EXPECT_NE(table(plan), before);
  ASSERT_EQ(plan.transfers.front().routes.size(), entry->choice.routes.size());
  for (std::size_t r = 0; r < entry->choice.routes.size(); ++r) {
    const RouteShare& share = plan.transfers.front().routes[r];
    EXPECT_EQ(share.route.kind, entry->choice.routes[r].kind);
    EXPECT_EQ(share.chunks, entry->choice.routes[r].chunks);
    EXPECT_NEAR(static_cast<double>(share.bytes), entry->choice.routes[r].share * kBytes, 8192);
  }
  expect_goes_as(*context, plan);
  // Another context reads it from the profile; the other pairs of the class have it, too.
  const auto later = open();
  const Plan again = plan_of(*later);
  EXPECT_EQ(table(again), table(plan));
  const Plan other = later->plan({{MemoryId::gpu(2), MemoryId::gpu(0), kBytes}});
  ASSERT_EQ(other.transfers.front().routes.size(), plan.transfers.front().routes.size());
  EXPECT_EQ(other.transfers.front().routes.front().bytes,
            again.transfers.front().routes.front().bytes);
  expect_goes_as(*later, again);
}

TEST_F(TuningTest, EveryClassAndPatternIsTuned) {
  const auto context = open();
  TuningRequest request = one_pair(kMiB);
  request.pairs.clear();
  const Reports reports = tune(*context, request);
  EXPECT_FALSE(reports.result.stopped);
  EXPECT_THAT(reports.tasks, testing::UnorderedElementsAre(
                                 "gpu0 to gpu1, one way, 1 MiB", "gpu0 to gpu1, both ways, 1 MiB",
                                 "gpu0 to gpu1, window, 1 MiB", "gpu0 to host0, one way, 1 MiB",
                                 "gpu0 to host0, both ways, 1 MiB", "gpu0 to host0, window, 1 MiB",
                                 "host0 to gpu0, one way, 1 MiB", "host0 to gpu0, window, 1 MiB"));
  EXPECT_EQ(context->source().tables.table<TunedTransfer>().entries().size(), 16u);
  for (const ExecutorKind executor : {stream, graph}) {
    const TunedTransfer* const window = known(*context, Pattern::window, executor, kMiB);
    EXPECT_LE(window->measured_gbps, 132);
    EXPECT_GT(window->measured_gbps, .7 * 132);
    EXPECT_GT(window->measured_gbps,
              known(*context, Pattern::one_way, executor, kMiB)->measured_gbps);
  }
  // Both ways between a GPU and host memory are tuned in one order, and serve in both.
  const Request down{MemoryId::gpu(0), MemoryId::host(0), kMiB};
  const Request up{MemoryId::host(0), MemoryId::gpu(0), kMiB};
  const auto plan = context->planner().plan(std::vector<Request>{down, up}, 0);
  const auto other = context->planner().plan(std::vector<Request>{up, down}, 0);
  EXPECT_TRUE(plan->tuned);
  EXPECT_TRUE(other->tuned);
}

TEST_F(TuningTest, StoppedItGoesOnFromTheProfile) {
  TuningRequest request = one_pair();
  request.sizes = {kMiB, 2 * kMiB};
  {
    const auto context = open();
    const Reports first = tune(*context, request, [&] {
      return context->source().tables.table<TunedTransfer>().entries().size() >= 3;
    });
    EXPECT_TRUE(first.result.stopped);
    EXPECT_EQ(first.total, 6u);
    EXPECT_EQ(context->source().tables.table<TunedTransfer>().entries().size(), 3u);
  }
  const std::vector<TunedTransfer> kept = open()->source().tables.table<TunedTransfer>().entries();
  ASSERT_EQ(kept.size(), 3u);
  {
    const auto context = open();
    const Reports second = tune(*context, request);
    EXPECT_FALSE(second.result.stopped);
    EXPECT_EQ(second.total, 5u) << "one task was done, of another one executor";
    EXPECT_FALSE(second.tasks.contains("gpu0 to gpu1, one way, 2 MiB"));
    ASSERT_EQ(context->source().tables.table<TunedTransfer>().entries().size(), 12u);
    for (std::size_t i = 0; i < kept.size(); ++i) {
      EXPECT_EQ(digest(context->source().tables.table<TunedTransfer>().entries()[i]),
                digest(kept[i]));
      EXPECT_EQ(context->source().tables.table<TunedTransfer>().entries()[i].tried, kept[i].tried);
    }
  }
  const auto context = open();
  const std::string before = text();
  const Reports third = tune(*context, request);
  EXPECT_EQ(third.total, 0u);
  EXPECT_EQ(third.calls, 1u) << "only that it is done";
  EXPECT_EQ(text(), before);
}

TEST_F(TuningTest, StoppedSearch_KeepsNoResult) {
  const auto context = open();
  std::size_t left = 5;
  const Reports reports = tune(*context, one_pair(), [&] { return left-- == 0; });
  EXPECT_TRUE(reports.result.stopped);
  EXPECT_TRUE(context->source().tables.table<TunedTransfer>().entries().empty());
  // What was tried out last is forgotten.
  EXPECT_EQ(table(plan_of(*context)), table(plan_of(*open({{"profile", "off"}}))));
}

TEST_F(TuningTest, BudgetEndsTheSearch) {
  const auto context = open();
  TuningRequest request = one_pair();
  request.budget_s = 1e-6;
  EXPECT_TRUE(tune(*context, request).result.stopped);
  EXPECT_TRUE(context->source().tables.table<TunedTransfer>().entries().empty());
}

TEST_F(TuningTest, Retune_ReplacesAllButEdits) {
  {
    const auto context = open();
    tune(*context, one_pair());
    ASSERT_EQ(context->source().tables.table<TunedTransfer>().entries().size(), 6u);
  }
  write_choice(Pattern::one_way, stream, .25, 2);
  replace("measured_gbps = 100.00", "measured_gbps = 999.00");
  const auto again = open();
  ASSERT_FALSE(known(*again, Pattern::one_way, stream)->edited) << "figures are no edit";
  replace("shares = [0.7500, 0.2500]", "shares = [0.5000, 0.5000]");
  replace("chunks = [1, 2]", "chunks = [1, 4]");

  const auto edited = open();
  ASSERT_TRUE(known(*edited, Pattern::one_way, stream)->edited);
  const Plan plan = plan_of(*edited);
  EXPECT_EQ(table(plan), "direct 0.50/1, via gpu2 0.50/4");
  expect_goes_as(*edited, plan);

  TuningRequest request = one_pair();
  request.again = true;
  const Reports reports = tune(*edited, request);
  EXPECT_EQ(reports.total, 3u);
  EXPECT_EQ(table(plan_of(*edited)), "direct 0.50/1, via gpu2 0.50/4");
  const auto later = open();
  EXPECT_TRUE(known(*later, Pattern::one_way, stream)->edited);
  EXPECT_EQ(table(plan_of(*later)), "direct 0.50/1, via gpu2 0.50/4");
  EXPECT_EQ(later->source().tables.table<TunedTransfer>().entries().size(), 6u);
}

TEST_F(TuningTest, SimulatedNodeWithoutFile_SavesNothing) {
  setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1);
  const auto context = open({{"profile", "auto"}});
  tune(*context, one_pair());
  unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(context->source().tables.table<TunedTransfer>().entries().size(), 6u);
  EXPECT_TRUE(context->planner()
                  .plan(std::vector<Request>{{MemoryId::gpu(0), MemoryId::gpu(1), kBytes}}, 0)
                  ->tuned);
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(TuningTest, WrongRequests_AreRefused) {
  const auto context = open();
  TuningRequest small = one_pair(kMiB);
  small.sizes.push_back(255 * kKiB);
  EXPECT_THROW(tune(*context, small), InvalidArgument);
  TuningRequest far = one_pair();
  far.pairs.front().dst = MemoryId::gpu(7);
  EXPECT_THROW(tune(*context, far), InvalidArgument);
  EXPECT_FALSE(std::filesystem::exists(profile()));
}

}  // namespace
}  // namespace polypath::test
