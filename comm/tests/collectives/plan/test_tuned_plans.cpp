// Plans that follow what was tuned, and what a tuner would try.
#include "collectives/plan/tuned_plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/units.hpp"
#include "collectives/plan/collective_json.hpp"
#include "known_node.hpp"

namespace polypath {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

CollectiveRequest allreduce(std::uint64_t bytes, int ranks = 4) {
  return request_of_bytes(CollectiveOp::allreduce, DataType::float32, bytes, ranks);
}

/// The entry of an allreduce on four GPUs of narval.
TunedCollective entry(std::uint64_t bytes, CollectiveVariant way) {
  return {.op = "allreduce",
          .ranks = "4 ranks, nvlink x4",
          .bytes = bytes,
          .way = std::move(way),
          .planned_us = 30,
          .us = 20,
          .tried = 9};
}

const CollectiveVariant kFlat{.algorithm = "flat", .stages = 2, .blocks = 24};
const CollectiveVariant kCells{.algorithm = "cells", .stages = 2, .blocks = 16};

/// What entries of earlier versions say of a plan.
CollectiveVariant without_tiles(CollectiveVariant way) {
  way.tile_bytes = 0;
  way.lag = 0;
  return way;
}

/// The plan on narval by these entries.
CollectivePlan plan_by(const std::vector<TunedCollective>& tuned, std::uint64_t bytes,
                       const CollectiveOptions& options = {}) {
  return plan_tuned_collective(known("narval"), allreduce(bytes), options, tuned);
}
std::string model(std::uint64_t bytes, const CollectiveOptions& options = {}) {
  return to_json(plan_collective(known("narval"), allreduce(bytes), options)).dump();
}

TEST(TunedPlans, ClassesOfKnownNodes) {
  EXPECT_EQ(collective_class(known("narval"), {0, 1, 2, 3}), "4 ranks, nvlink x4");
  EXPECT_EQ(collective_class(known("narval"), {2, 1}), "2 ranks, nvlink x4");
  EXPECT_EQ(collective_class(known("hgx-h200-x4"), {0, 1}), "2 ranks, nvswitch x18");
  const std::string islands = collective_class(known("mist"), {0, 1, 2, 3});
  EXPECT_THAT(islands, HasSubstr("islands 0 1 | 2 3"));
  EXPECT_NE(islands, collective_class(known("mist"), {0, 2, 1, 3}));
}

TEST(TunedPlans, NoEntry_FollowsTheModel) {
  const std::vector<TunedCollective> none;
  EXPECT_EQ(to_json(plan_by(none, kMiB)).dump(), model(kMiB));
  TunedCollective other = entry(kMiB, kFlat);
  other.op = "reduce";
  EXPECT_EQ(to_json(plan_by({other}, kMiB)).dump(), model(kMiB));
  other = entry(kMiB, kFlat);
  other.ranks = "2 ranks, nvlink x4";
  EXPECT_EQ(to_json(plan_by({other}, kMiB)).dump(), model(kMiB));
}

TEST(TunedPlans, FollowTheNearestSize) {
  const std::vector<TunedCollective> tuned{entry(256 * kKiB, kCells), entry(512 * kKiB, kFlat)};
  for (const std::uint64_t bytes : {182 * kKiB, 256 * kKiB, 361 * kKiB})
    EXPECT_EQ(variant_of(plan_by(tuned, bytes)), kCells) << bytes;
  for (const std::uint64_t bytes : {364 * kKiB, 512 * kKiB, 724 * kKiB})
    EXPECT_EQ(without_tiles(variant_of(plan_by(tuned, bytes))), kFlat) << bytes;
  for (const std::uint64_t bytes : {178 * kKiB, 730 * kKiB, 64 * kMiB})
    EXPECT_EQ(to_json(plan_by(tuned, bytes)).dump(), model(bytes)) << bytes;
}

TEST(TunedPlans, ReasonNamesTheMeasurement) {
  const CollectivePlan plan = plan_by({entry(256 * kKiB, kFlat)}, 256 * kKiB);
  ASSERT_TRUE(plan.tuned);
  EXPECT_THAT(plan.reason, AllOf(HasSubstr("tuned: 20.0 us measured at 262144 bytes"),
                                 HasSubstr("against 30.0 us by lines")));
  ASSERT_TRUE(plan.kernel);
  EXPECT_GT(plan.kernel->slot_bytes, 0u);
  EXPECT_EQ(plan.candidates.front().algorithm, Algorithm::flat);
  EXPECT_EQ(plan.candidates.front().us, plan.predicted_us);
  EXPECT_EQ(plan.candidates[1].algorithm, Algorithm::lines);
  EXPECT_THAT(plan.candidates[1].reason, HasSubstr("measured 1.50 times as long"));
  EXPECT_EQ(to_json(plan)["tuned"]["us"], 20);

  const CollectiveVariant own =
      variant_of(plan_collective(known("narval"), allreduce(256 * kKiB), CollectiveOptions{}));
  const CollectivePlan same = plan_by({entry(256 * kKiB, own)}, 256 * kKiB);
  EXPECT_THAT(same.reason, HasSubstr("as predicted, the fastest of 9 ways"));
  EXPECT_TRUE(same.tuned);
}

TEST(TunedPlans, EntryOfPlannedTiles_IsAsPredicted) {
  const std::uint64_t bytes = 64 * kMiB;
  CollectiveOptions kernels_alone;
  kernels_alone.copies = false;
  const CollectivePlan planned = plan_collective(known("narval"), allreduce(bytes), kernels_alone);
  ASSERT_EQ(planned.algorithm, Algorithm::flat);
  for (const CollectiveVariant& way : {variant_of(planned), without_tiles(variant_of(planned))})
    EXPECT_THAT(plan_by({entry(bytes, way)}, bytes, kernels_alone).reason,
                HasSubstr("as predicted"));
}

TEST(TunedPlans, EntryWithTilesAndLag_IsFollowed) {
  const CollectiveVariant way{
      .algorithm = "flat", .stages = 2, .blocks = 24, .tile_bytes = 12 * kKiB, .lag = 4};
  const CollectivePlan plan = plan_by({entry(16 * kMiB, way)}, 16 * kMiB);
  EXPECT_EQ(variant_of(plan), way);
  EXPECT_EQ(plan.kernel->slot_bytes, 12 * kKiB);
  EXPECT_EQ(plan.kernel->lag, 4);
  EXPECT_EQ(to_json(plan)["kernel"]["lag"], 4);
}

TEST(TunedPlans, ImpossibleEntry_IsIgnored) {
  const auto stays = [](const CollectiveVariant& way, std::uint64_t bytes,
                        const CollectiveOptions& options = {}) {
    EXPECT_EQ(to_json(plan_by({entry(bytes, way)}, bytes, options)).dump(), model(bytes, options))
        << to_string(way);
  };
  stays(kCells, 64 * kMiB);  // more than cells are for
  stays({.algorithm = "hierarchical", .lanes = 1, .chunk_bytes = 65536}, kMiB);  // one island
  CollectiveOptions kernels_alone;
  kernels_alone.copies = false;
  stays({.algorithm = "pairwise", .chunk_bytes = 65536}, kMiB, kernels_alone);
  // Requests for an algorithm, or chunks, are followed.
  CollectiveOptions flat;
  flat.algorithm = Algorithm::flat;
  stays(kCells, 64 * kKiB, flat);
}

TEST(TunedPlans, AsManyBlocksAsThereMayBe) {
  CollectiveOptions few;
  few.limits.blocks = 8;
  EXPECT_EQ(plan_by({entry(256 * kKiB, kFlat)}, 256 * kKiB, few).kernel->blocks, 8);
}

TEST(TunedPlans, OperationsByPartsHaveOneStage) {
  TunedCollective all_gather = entry(256 * kKiB, kFlat);
  all_gather.op = "all_gather";
  const auto request = request_of_bytes(CollectiveOp::all_gather, DataType::float32, 256 * kKiB, 4);
  const std::vector<TunedCollective> tuned{all_gather};
  const CollectivePlan plan =
      plan_tuned_collective(known("narval"), request, CollectiveOptions{}, tuned);
  EXPECT_EQ(plan.kernel->stages, 1);
}

std::vector<std::string> names_of(const std::vector<CollectiveVariant>& ways) {
  std::vector<std::string> names;
  for (const CollectiveVariant& way : ways) names.push_back(to_string(way));
  return names;
}

TEST(PlanWithoutHost, MixedPlan_HasOtherAlgorithm) {
  for (const char* const name : {"cedar", "narval", "beluga", "marenostrum5"}) {
    const Node node = known(name);
    const CollectiveRequest request = allreduce(256 * kMiB);
    const CollectivePlan plan = plan_tuned_collective(node, request, {}, {});
    EXPECT_EQ(plan.algorithm, Algorithm::mixed) << name;
    const CollectivePlan without = plan_without_host(node, request, {}, {});
    EXPECT_FALSE(uses_host(without.algorithm)) << name;
    EXPECT_EQ(without.host_count, 0u) << name;
    EXPECT_EQ(without.order, plan.order) << name;
    EXPECT_GT(without.predicted_us, plan.predicted_us) << name;
  }
}

TEST(PlanWithoutHost, TunedOrForcedMixed_HasOtherAlgorithm) {
  const std::vector<TunedCollective> tuned{entry(kMiB, {.algorithm = "mixed"})};
  EXPECT_EQ(plan_by(tuned, kMiB).algorithm, Algorithm::mixed);
  const Node node = known("narval");
  EXPECT_FALSE(uses_host(plan_without_host(node, allreduce(kMiB), {}, tuned).algorithm));
  const CollectiveOptions forced{.algorithm = Algorithm::mixed};
  EXPECT_FALSE(uses_host(plan_without_host(node, allreduce(kMiB), forced, {}).algorithm));
}

TEST(PlanWithoutHost, IslandsOutOfRankOrder_SumInRankOrder) {
  const Node node = known("mist");
  CollectiveRequest request = allreduce(64 * kMiB);
  EXPECT_EQ(plan_without_host(node, request, {}, {}).algorithm, Algorithm::hierarchical);
  request.gpus = {0, 2, 1, 3};
  EXPECT_FALSE(plan_tuned_collective(node, request, {}, {}).rank_order);
  EXPECT_TRUE(plan_without_host(node, request, {}, {}).rank_order);
}

TEST(TunedPlans, WaysToTry) {
  const auto small = names_of(candidate_variants(known("narval"), allreduce(64 * kKiB), {}));
  EXPECT_THAT(small, AllOf(Contains("cells, 2 stages, 8 blocks"),
                           Contains("flat, 1 stage, 32 blocks, tiles of 4096 bytes, lag 2"),
                           Not(Contains(HasSubstr("chunks")))));
  // Three times as long, the model says.
  EXPECT_THAT(small, Not(Contains(HasSubstr("flat, 2 stages"))));
  const auto large = names_of(candidate_variants(known("narval"), allreduce(16 * kMiB), {}));
  EXPECT_THAT(large, AllOf(Contains("flat, 2 stages, 64 blocks, tiles of 28672 bytes, lag 2"),
                           Contains("flat, 2 stages, 128 blocks, tiles of 16384 bytes, lag 4"),
                           Not(Contains(HasSubstr("cells")))));
  // Copies where there are islands.
  EXPECT_THAT(names_of(candidate_variants(known("mist"), allreduce(16 * kMiB), {})),
              Contains(AllOf(HasSubstr("hierarchical, "), HasSubstr("chunks of "))));
  const auto parts = request_of_bytes(CollectiveOp::all_gather, DataType::float32, kMiB, 4);
  EXPECT_THAT(names_of(candidate_variants(known("narval"), parts, {})),
              Not(Contains(HasSubstr("2 stages"))));
  // Never what is planned: it is what all are compared with.
  for (const std::uint64_t bytes : {16 * kKiB, kMiB, 16 * kMiB}) {
    const Node node = known("mist");
    EXPECT_THAT(candidate_variants(node, allreduce(bytes), {}),
                Not(Contains(variant_of(plan_collective(node, allreduce(bytes), {})))));
  }
}

TEST(TunedPlans, AllThatIsTriedIsFollowedOnceItIsTuned) {
  for (const char* name : {"narval", "mist", "hgx-h200-x4"})
    for (const CollectiveOp op : {CollectiveOp::allreduce, CollectiveOp::broadcast,
                                  CollectiveOp::all_gather, CollectiveOp::reduce_scatter}) {
      const Node node = known(name);
      const auto request = request_of_bytes(op, DataType::float32, 512 * kKiB, 4);
      for (const CollectiveVariant& way : candidate_variants(node, request, {})) {
        TunedCollective tuned_entry = entry(request.bytes(), way);
        tuned_entry.op = to_string(op);
        tuned_entry.ranks = collective_class(node, request.gpus);
        const std::vector<TunedCollective> tuned{tuned_entry};
        EXPECT_EQ(variant_of(plan_tuned_collective(node, request, {}, tuned)), way)
            << to_string(way);
      }
    }
}

}  // namespace
}  // namespace polypath
