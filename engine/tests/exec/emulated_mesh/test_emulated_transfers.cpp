// Contexts with an emulated mesh: links reach what was asked, every transfer goes as planned, the
// native copy is as slow as its link.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>

#include "exec/emulated_mesh/mesh_node.hpp"
#include "exec/staging_memory.hpp"
#include "mesh_test.hpp"
#include "tune/group_timer.hpp"

namespace polypath::test {
namespace {

class EmulatedTransfersTest : public MeshTest {
 protected:
  /// A context whose links are as fast as that many lanes.
  std::unique_ptr<Context> make_context(double lanes, OptionArguments arguments = {}) {
    asked_ = lanes * one_lane_gbps();
    arguments.emplace_back("emulate_mesh", fmt::format("{:.2f}", asked_));
    return std::make_unique<Context>(source(), arguments);
  }
  /// The second of two runs, on `gpu`'s stream.
  double native_gbps(Context& context, const Payload& payload, int gpu) {
    const Stream stream = stream_on(gpu);
    const std::array streams{stream.get()};
    GroupTimer timer(driver(), streams);
    const auto issue = [&] { context.copy_async(payload.transfer(stream.get())); };
    timer.run(issue);
    return rate_gbps(payload.shape().bytes, timer.run(issue));
  }

  double asked_ = 0;
};

TEST_F(EmulatedTransfersTest, EveryLinkReachesWhatWasAsked) {
  for (const double lanes : {1.0, 2.0}) {
    const auto context = make_context(lanes);
    ASSERT_FALSE(context->source().emulated_links.empty());
    for (const EmulatedLink& link : context->source().emulated_links) {
      EXPECT_NEAR(link.reached_gbps / asked_, 1, 0.15)
          << link.from << " to " << link.to << ", " << link.lanes << " lanes";
      EXPECT_EQ(link.lanes, static_cast<int>(lanes));
    }
  }
}

TEST_F(EmulatedTransfersTest, NativeCopyIsAsSlowAsItsLink) {
  const auto context = make_context(2, {{"routes", "direct"}});
  const Payload data = payload({from_, to_, kLarge});
  const Traffic traffic(*context);
  EXPECT_NEAR(native_gbps(*context, data, from_.index) / asked_, 1, 0.15);
  // On a stream of the destination it is a pull, which may be slower.
  EXPECT_LT(native_gbps(*context, data, to_.index), 1.15 * asked_);
  EXPECT_EQ(traffic.native(), 4u);
  EXPECT_TRUE(data.arrived());
}

TEST_F(EmulatedTransfersTest, StagingMemoryIsAsSlowAsItsLink) {
  const auto context = make_context(1);
  const auto& mesh = context->source().driver;
  StagingMemory staging(mesh, context->node(), to_, kLarge, to_.index, context_of(to_.index),
                        context->devices().pinned());
  staging.enable_access(from_.index);
  const Payload there = payload({from_, to_, kLarge});
  const Stream stream = stream_on(from_.index);
  const std::array streams{stream.get()};
  GroupTimer timer(driver(), streams);
  const Transfer transfer = there.transfer(stream.get());
  const auto issue = [&] {
    POLYPATH_CHECK(*mesh, memcpy_async(staging.address(), transfer.src, kLarge, stream.get()));
  };
  timer.run(issue);
  EXPECT_NEAR(rate_gbps(kLarge, timer.run(issue)) / asked_, 1, 0.15);
  // By the destination's GPU, within it.
  const Stream within = stream_on(to_.index);
  ASSERT_EQ(mesh->memcpy_async(transfer.dst, staging.address(), kLarge, within.get()),
            CUDA_SUCCESS);
  synchronize(within.get());
  EXPECT_TRUE(there.arrived());
}

TEST_F(EmulatedTransfersTest, MoreRoutesAreFasterThanTheNativeCopy) {
  const auto context = make_context(1);
  const Payload data = payload({from_, to_, 4 * kLarge});
  if (context->plan({data.request()}).native()) GTEST_SKIP() << "nothing to split";
  context->prepare({data.request()});
  const Traffic traffic(*context);
  const double gbps = native_gbps(*context, data, from_.index);
  EXPECT_EQ(traffic.split(), 2u);
  EXPECT_GT(gbps, 1.2 * asked_);
  EXPECT_TRUE(data.arrived());
}

TEST_F(EmulatedTransfersTest, EveryPairOfMemoriesGoesAsPlanned) {
  for (const char* executor : {"stream", "graph"}) {
    const auto context = make_context(1, {{"executor", executor}});
    for (const MemoryId src : memories())
      for (const MemoryId dst : memories())
        for (const std::uint64_t bytes : {100 * kKiB + 1, 32 * kMiB + 7}) {
          if (src == dst || (src.is_host() && dst.is_host())) continue;
          SCOPED_TRACE(fmt::format("{} to {}, {} bytes, {}", to_string(src), to_string(dst), bytes,
                                   executor));
          const Payload data = payload({src, dst, bytes, 1, 2});
          const Plan plan = context->plan({data.request()});
          context->prepare({data.request()});
          const Stream stream = stream_on(src.is_gpu() ? src.index : dst.index);
          const Traffic traffic(*context);
          copy(*context, data.transfer(stream.get()));
          synchronize(stream.get());
          EXPECT_TRUE(data.arrived());
          if (bytes < 256 * kKiB || plan.native()) {
            EXPECT_EQ(traffic.native(), 1u);
          } else {
            EXPECT_TRUE(traffic.went_as(plan));
          }
        }
  }
}

TEST_F(EmulatedTransfersTest, RefusesMoreThanALinkCarries) {
  EXPECT_THROW(Context(source(), {{"emulate_mesh", "1000"}}), InvalidArgument);
}

}  // namespace
}  // namespace polypath::test
