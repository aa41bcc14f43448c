// One transfer at a time: every size, offset and pair of end points arrives whole, by the routes of
// the plan.
#include <array>

#include "behaviour_test.hpp"

namespace polypath::test {
namespace {

bool plannable(const Payload::Shape& shape) {
  return shape.src != shape.dst && !(shape.src.is_host() && shape.dst.is_host());
}

/// What the engine must do once the routes are ready.
testing::AssertionResult went_as_expected(Context& context, const Traffic& traffic,
                                          const Payload::Shape& shape) {
  // Smaller transfers are not even planned.
  constexpr std::uint64_t kPlannedFrom = 256 * kKiB;
  if (shape.bytes < kPlannedFrom) return traffic.went_natively(NativeReason::small, shape.bytes);
  if (!plannable(shape)) return traffic.went_natively(NativeReason::same_memory, shape.bytes);
  const Plan plan = context.plan({{shape.src, shape.dst, shape.bytes}});
  if (plan.native()) return traffic.went_natively(NativeReason::no_gain, shape.bytes);
  return traffic.went_as(plan);
}

}  // namespace

void BehaviourTest::expect_transfer(Context& context, const Payload::Shape& shape) {
  SCOPED_TRACE(to_string(shape.src) + " to " + to_string(shape.dst) + ", " +
               std::to_string(shape.bytes) + " bytes, offsets " + std::to_string(shape.src_offset) +
               " and " + std::to_string(shape.dst_offset));
  if (plannable(shape)) context.prepare({{shape.src, shape.dst, shape.bytes}});
  const Payload data = payload(shape);
  const Stream stream = stream_on(shape.src.is_gpu() ? shape.src.index : 0);
  const Traffic traffic(context);
  copy(context, data.transfer(stream.get()));
  synchronize(stream.get());
  EXPECT_TRUE(data.arrived());
  EXPECT_TRUE(went_as_expected(context, traffic, shape));
}

namespace {

TEST_P(ContentTest, RunsTheNamedExecutor) {
  const auto context = make_context();
  const MemoryId src = MemoryId::gpu(0);
  const MemoryId dst = gpus() > 1 ? MemoryId::gpu(1) : MemoryId::host(0);
  const auto split = min_split(*context, src, dst);
  if (!split) GTEST_SKIP() << "nothing is split on this node";
  EXPECT_EQ(to_string(context->executor_for({{src, dst, *split}})), GetParam().name);
  expect_transfer(*context, {src, dst, *split});
  EXPECT_EQ(context->graph_counts().launches, GetParam().name == "graph" ? 1u : 0u);
}

TEST_P(ContentTest, EverySizeArrives) {
  const auto context = make_context();
  const MemoryId src = MemoryId::gpu(0);
  const MemoryId dst = gpus() > 1 ? MemoryId::gpu(1) : MemoryId::host(0);
  for (const std::uint64_t bytes :
       {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{15}, 4 * kKiB - 1, 64 * kKiB,
        256 * kKiB - 1, 256 * kKiB, 256 * kKiB + 1, kMiB, kMiB + 3, 4 * kMiB - 1, 4 * kMiB,
        8 * kMiB + 4097, 16 * kMiB + 1, 32 * kMiB - 1, 64 * kMiB, 256 * kMiB})
    expect_transfer(*context, {src, dst, bytes});
}

TEST_P(ContentTest, EveryOffsetArrives) {
  const auto context = make_context();
  const MemoryId src = MemoryId::gpu(0);
  const MemoryId dst = gpus() > 1 ? MemoryId::gpu(1) : MemoryId::host(0);
  const std::uint64_t split = min_split(*context, src, dst).value_or(8 * kMiB);
  constexpr std::array<std::uint64_t, 5> kOffsets = {1, 3, 255, 4095, 65537};
  for (std::size_t i = 0; i < kOffsets.size(); ++i)
    expect_transfer(*context,
                    {src, dst, split + i, kOffsets[i], kOffsets[kOffsets.size() - 1 - i]});
}

TEST_P(ContentTest, EveryPairOfEndPointsArrives) {
  const auto context = make_context();
  for (const MemoryId src : memories())
    for (const MemoryId dst : memories()) {
      const auto split = plannable({src, dst}) ? min_split(*context, src, dst) : std::nullopt;
      expect_transfer(*context, {src, dst, split.value_or(kMiB) + random_() % 8191, random_() % 64,
                                 random_() % 64});
    }
}

TEST_P(ContentTest, RandomSizesAndOffsetsArrive) {
  const auto context = make_context();
  const auto all = memories();
  for (int i = 0; i < 24; ++i)
    expect_transfer(*context, {all[random_() % all.size()], all[random_() % all.size()],
                               1 + random_() % (24 * kMiB), random_() % 70000, random_() % 70000});
}

TEST_P(ContentTest, EveryChoiceOfChunksArrives) {
  const MemoryId src = MemoryId::gpu(0);
  const MemoryId dst = gpus() > 1 ? MemoryId::gpu(1) : MemoryId::host(0);
  for (const OptionArguments& choice :
       {OptionArguments{{"chunk_size", "64K"}}, OptionArguments{{"chunk_size", "16M"}},
        OptionArguments{{"chunks", "1"}}, OptionArguments{{"chunks", "40"}},
        OptionArguments{{"max_routes", "2"}}, OptionArguments{{"staging_size", "4M"}},
        OptionArguments{{"staging_size", "5M"}, {"chunks", "7"}}}) {
    SCOPED_TRACE(choice.front().first + " " + choice.front().second);
    const auto context = make_context(choice);
    expect_transfer(*context, {src, dst, 24 * kMiB + 5, 1, 2});
  }
}

TEST_P(ContentTest, EachKindOfRouteArrivesAlone) {
  for (const char* kind : {"direct", "gpu", "host"}) {
    SCOPED_TRACE(kind);
    const auto context = make_context({{"routes", kind}});
    for (const MemoryId dst : {MemoryId::gpu(gpus() - 1), MemoryId::host(0)}) {
      if (dst == MemoryId::gpu(0)) continue;
      const Plan plan = context->plan({{MemoryId::gpu(0), dst, 16 * kMiB}});
      // Where no route of the kind leads, the native copy serves.
      expect_transfer(*context, {MemoryId::gpu(0), dst, 16 * kMiB});
      for (const RouteShare& share : plan.transfers.front().routes)
        EXPECT_EQ(to_string(share.route.kind), kind);
    }
  }
}

TEST_P(ContentTest, StagingMemoryStaysWithinItsLimit) {
  for (const char* limit : {"4M", "64M"}) {
    const auto context = make_context({{"staging_size", limit}});
    for (const std::uint64_t bytes : {16 * kMiB, 128 * kMiB}) {
      const Payload::Shape shape{MemoryId::gpu(0),
                                 gpus() > 1 ? MemoryId::gpu(1) : MemoryId::host(0), bytes};
      expect_transfer(*context, shape);
      for (const MemoryId memory : node().memories())
        EXPECT_LE(context->resources().staging_bytes(memory), context->options().staging_size)
            << to_string(memory);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Graph, ContentTest, testing::Values(executor_case("graph")), kCaseName);
INSTANTIATE_TEST_SUITE_P(Stream, ContentTest, testing::Values(executor_case("stream")), kCaseName);

}  // namespace
}  // namespace polypath::test
