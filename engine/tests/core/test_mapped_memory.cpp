// Memory by virtual mappings: every mapping of a range counts, also one that the driver hides.
#include "mapped_memory.hpp"

#include <algorithm>

#include "core/report.hpp"
#include "support/simulated_test.hpp"

namespace polypath::test {
namespace {

class MappedMemoryTest : public SimulatedTest, public testing::WithParamInterface<MappingAnswer> {
 protected:
  void SetUp() override {
    SimulatedTest::SetUp();
    if (IsSkipped()) return;
    if (gpus() < 4) GTEST_SKIP() << "needs GPUs to stage on";
    mapped_.emplace(source().driver, GetParam());
    NodeSource source = this->source();
    source.driver = mapped_->driver();
    context_ = std::make_unique<Context>(source, OptionArguments{});
    context_->prepare({to_gpu_1(), from_host()});
    stream_.emplace(stream_on(0));
    for (int gpu = 0; gpu < gpus(); ++gpu) all_.insert(gpu);
  }

  static Request to_gpu_1() { return {MemoryId::gpu(0), MemoryId::gpu(1), kSplitBytes}; }
  static Request from_host() { return {MemoryId::host(0), MemoryId::gpu(0), kSplitBytes}; }
  /// Mappings of a buffer: of 12 and 2 MiB, and the rest, which nothing aligns.
  static std::vector<Mapping> three(int gpu, const std::set<int>& access) {
    return {
        {12 * kMiB, gpu, access}, {2 * kMiB, gpu, access}, {kSplitBytes - 14 * kMiB, gpu, access}};
  }
  /// Copies, and says whether all bytes arrived.
  testing::AssertionResult arrives(const Payload& payload) {
    copy(*context_, payload.transfer(stream_->get()));
    synchronize(stream_->get());
    return payload.arrived();
  }
  /// No bytes were staged on `gpu` since `before`.
  void expect_unused(const Counters::Snapshot& before, int gpu) {
    for (const auto& [key, count] : context_->counters().snapshot().routes) {
      const auto known = before.routes.find(key);
      if (known != before.routes.end() && known->second.transfers == count.transfers) continue;
      EXPECT_EQ(key.route.find(to_string(MemoryId::gpu(gpu))), std::string::npos) << key.route;
    }
  }
  [[nodiscard]] bool stages_on(const Request& request, int gpu) {
    const Plan plan = context_->plan({request});
    return std::ranges::any_of(plan.transfers.front().routes, [&](const RouteShare& share) {
      return share.route.staged() && share.route.via == MemoryId::gpu(gpu);
    });
  }

  std::optional<MappedMemory> mapped_;
  std::unique_ptr<Context> context_;
  std::optional<Stream> stream_;
  std::set<int> all_;
};

TEST_P(MappedMemoryTest, MappingsThatAllGpusReachAreSplitAsAny) {
  const Payload data = payload({MemoryId::gpu(0), MemoryId::gpu(1), kSplitBytes});
  const Transfer transfer = data.transfer(stream_->get());
  mapped_->map(transfer.dst, three(1, all_));
  mapped_->map(transfer.src, three(0, all_));
  const Traffic traffic(*context_);
  EXPECT_TRUE(arrives(data));
  EXPECT_TRUE(traffic.went_as(context_->plan({to_gpu_1()})));
}

TEST_P(MappedMemoryTest, MappingOnOtherGpu_GoesNatively) {
  const Payload data = payload({MemoryId::gpu(0), MemoryId::gpu(1), kSplitBytes});
  auto mappings = three(1, all_);
  mappings[1].gpu = 2;
  mapped_->map(data.transfer(nullptr).dst, mappings);
  const Traffic traffic(*context_);
  EXPECT_TRUE(arrives(data));
  EXPECT_TRUE(traffic.went_natively(NativeReason::several_allocations, kSplitBytes));
}

TEST_P(MappedMemoryTest, MappingInHostMemory_GoesNatively) {
  const Payload data = payload({MemoryId::gpu(0), MemoryId::gpu(1), kSplitBytes});
  auto mappings = three(0, all_);
  mappings[1].gpu = -1;
  mapped_->map(data.transfer(nullptr).src, mappings);
  const Traffic traffic(*context_);
  EXPECT_TRUE(arrives(data));
  EXPECT_TRUE(traffic.went_natively(NativeReason::several_allocations, kSplitBytes));
}

TEST_P(MappedMemoryTest, GpuWithoutAccess_StagesNothing) {
  const Payload data = payload({MemoryId::gpu(0), MemoryId::gpu(1), kSplitBytes});
  auto mappings = three(1, all_);
  mappings[1].access.erase(3);
  mapped_->map(data.transfer(nullptr).dst, mappings);
  const auto before = context_->counters().snapshot();
  const Traffic traffic(*context_);
  EXPECT_TRUE(arrives(data));
  expect_unused(before, 3);
  EXPECT_EQ(traffic.excluded(ExclusionReason::unreachable), stages_on(to_gpu_1(), 3) ? 1u : 0u);
  EXPECT_EQ(traffic.split() + traffic.native(), 1u);
}

TEST_P(MappedMemoryTest, HostMappingsAreReadOnlyByGpusThatMay) {
  const Payload data = payload({MemoryId::host(0), MemoryId::gpu(0), kSplitBytes});
  mapped_->map(data.transfer(nullptr).src, three(-1, {0, 1}));
  const auto before = context_->counters().snapshot();
  const Traffic traffic(*context_);
  EXPECT_TRUE(arrives(data));
  for (int gpu = 2; gpu < gpus(); ++gpu) expect_unused(before, gpu);
  EXPECT_EQ(traffic.split() + traffic.native(), 1u);
  std::uint64_t forbidden = 0;
  for (int gpu = 2; gpu < gpus(); ++gpu) forbidden += stages_on(from_host(), gpu) ? 1 : 0;
  EXPECT_EQ(traffic.excluded(ExclusionReason::unreachable), forbidden) << report(*context_);
}

TEST_P(MappedMemoryTest, RemappedMemory_IsInspectedAgain) {
  const Payload data = payload({MemoryId::gpu(0), MemoryId::gpu(1), kSplitBytes});
  const CUdeviceptr dst = data.transfer(nullptr).dst;
  mapped_->map(dst, three(1, all_));
  EXPECT_TRUE(arrives(data));
  mapped_->map(dst, three(2, all_));
  {
    bool to_gpu_2 = false;
    const Traffic traffic(*context_);
    copy(*context_, data.transfer(stream_->get()));
    synchronize(stream_->get());
    EXPECT_TRUE(traffic.split() + traffic.native() == 1 && traffic.failed() == 0);
    for (const auto& [key, count] : context_->counters().snapshot().routes)
      to_gpu_2 = to_gpu_2 || key.dst == MemoryId::gpu(2);
    EXPECT_EQ(to_gpu_2, traffic.split() == 1);
  }
  mapped_->map(dst, three(1, {1}));
  const auto before = context_->counters().snapshot();
  EXPECT_TRUE(arrives(data));
  for (int gpu = 2; gpu < gpus(); ++gpu) expect_unused(before, gpu);
}

TEST_P(MappedMemoryTest, GraphsSetAddressesOnEachLaunch) {
  NodeSource source = this->source();
  source.driver = mapped_->driver();
  Context graphs(source, {{"executor", "graph"}});
  graphs.prepare({to_gpu_1()});
  if (graphs.plan({to_gpu_1()}).native()) GTEST_SKIP() << "nothing is split here";
  const Payload data = payload({MemoryId::gpu(0), MemoryId::gpu(1), kSplitBytes});
  mapped_->map(data.transfer(nullptr).dst, three(1, all_));
  for (int i = 0; i < 3; ++i) {
    copy(graphs, data.transfer(stream_->get()));
    synchronize(stream_->get());
  }
  EXPECT_TRUE(data.arrived());
  // What lies at the addresses may have changed in between, and nothing shows it.
  EXPECT_EQ(graphs.graph_counts().hits, 0u);
  EXPECT_EQ(graphs.graph_counts().launches, 3u);
}

INSTANTIATE_TEST_SUITE_P(Answers, MappedMemoryTest,
                         testing::Values(MappingAnswer::mapping, MappingAnswer::reservation,
                                         MappingAnswer::refused),
                         [](const auto& test) {
                           switch (test.param) {
                             case MappingAnswer::mapping: return "mapping";
                             case MappingAnswer::reservation: return "reservation";
                             case MappingAnswer::refused: return "refused";
                           }
                           return "";
                         });

}  // namespace
}  // namespace polypath::test
