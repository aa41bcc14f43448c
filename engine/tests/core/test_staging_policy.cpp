// On which GPUs polypath stages: by compute mode, free memory and the processes there.
#include <map>
#include <set>

#include "core/json.hpp"
#include "support/simulated_test.hpp"

namespace polypath::test {
namespace {

TEST(StagingPolicy, UnknownFacts_RefuseNothing) {
  EXPECT_EQ(may_stage({}, 0), StagingReason::allowed);
  EXPECT_EQ(may_stage({}, kGiB), StagingReason::allowed);
}

TEST(StagingPolicy, ExclusiveOrProhibitedGpu_GetsNoContext) {
  StagingFacts facts;
  facts.exclusive = true;
  EXPECT_EQ(may_stage(facts, 0), StagingReason::exclusive);
  facts.has_context = true;
  EXPECT_EQ(may_stage(facts, kMiB), StagingReason::allowed);
  facts = {};
  facts.prohibited = true;
  EXPECT_EQ(may_stage(facts, 0), StagingReason::prohibited);
}

TEST(StagingPolicy, TakesSmallPartOfFreeWithContext) {
  StagingFacts facts;
  facts.has_context = true;
  facts.free_bytes = kGiB;
  EXPECT_EQ(may_stage(facts, 64 * kMiB), StagingReason::allowed);
  EXPECT_EQ(may_stage(facts, 64 * kMiB + 1), StagingReason::little_memory);
  facts.has_context = false;
  EXPECT_EQ(may_stage(facts, 0), StagingReason::little_memory);
  constexpr std::uint64_t kMeasured = 2143 * kMiB / 4;
  facts.free_bytes = 16 * kMeasured;
  EXPECT_EQ(may_stage(facts, 0), StagingReason::little_memory) << "less than a context takes";
  facts.free_bytes = 16 * 536 * kMiB;
  EXPECT_EQ(may_stage(facts, 0), StagingReason::allowed);
  EXPECT_EQ(may_stage(facts, 1), StagingReason::little_memory);
  facts.free_bytes = 0;
  facts.has_context = true;
  EXPECT_EQ(may_stage(facts, 0), StagingReason::allowed) << "nothing more is taken";
}

TEST(StagingPolicy, ManyProcesses_NoContextIsAdded) {
  StagingFacts facts;
  facts.processes = 15;
  EXPECT_EQ(may_stage(facts, 0), StagingReason::allowed);
  facts.processes = 16;
  EXPECT_EQ(may_stage(facts, 0), StagingReason::too_many_processes);
  facts.has_context = true;
  EXPECT_EQ(may_stage(facts, 0), StagingReason::allowed);
}

// ---- On a node whose driver says so -------------------------------------------------------------

struct DriverAnswers {
  CudaDriver below;
  std::set<int> exclusive;
  bool little_memory = false;
};
DriverAnswers& driver_answers() {
  static DriverAnswers instance;
  return instance;
}

class StagingPolicyTest : public SimulatedTest {
 protected:
  void SetUp() override {
    SimulatedTest::SetUp();
    if (IsSkipped()) return;
    if (gpus() < 4) GTEST_SKIP() << "needs GPUs to stage on";
    driver_answers() = {*source().driver, {}, false};
    auto table = std::make_shared<CudaDriver>(*source().driver);
    table->device_get_attribute = [](int* value, CUdevice_attribute attribute, CUdevice gpu) {
      if (attribute != CU_DEVICE_ATTRIBUTE_COMPUTE_MODE)
        return driver_answers().below.device_get_attribute(value, attribute, gpu);
      *value = driver_answers().exclusive.contains(gpu) ? CU_COMPUTEMODE_EXCLUSIVE_PROCESS
                                                        : CU_COMPUTEMODE_DEFAULT;
      return CUDA_SUCCESS;
    };
    table->mem_get_info = [](std::size_t* free, std::size_t* total) {
      const CUresult result = driver_answers().below.mem_get_info(free, total);
      if (result == CUDA_SUCCESS && driver_answers().little_memory) *free = kMiB;
      return result;
    };
    driver_ = table;
    context_of(1);
    stream_.emplace(stream_on(0));
  }

  static Request wide() { return {MemoryId::gpu(0), MemoryId::gpu(1), kSplitBytes}; }
  std::unique_ptr<Context> make_context(const OptionArguments& arguments = {}) {
    NodeSource source = this->source();
    source.driver = driver_;
    return std::make_unique<Context>(source, arguments);
  }
  testing::AssertionResult arrives(Context& context) {
    const Payload data = payload({MemoryId::gpu(0), MemoryId::gpu(1), kSplitBytes});
    copy(context, data.transfer(stream_->get()));
    synchronize(stream_->get());
    return data.arrived();
  }

  std::shared_ptr<const CudaDriver> driver_;
  std::optional<Stream> stream_;
};

TEST_F(StagingPolicyTest, UnusedExclusiveGpus_GetNoContext) {
  driver_answers().exclusive = {0, 1, 2, 3};
  for (const char* const prepare : {"background", "wait"}) {
    auto context = make_context({{"prepare", prepare}});
    EXPECT_TRUE(arrives(*context));
    context->wait_prepared();
    EXPECT_NO_THROW(context->prepare({wide()}));
    EXPECT_TRUE(arrives(*context));
    for (int gpu = 2; gpu < gpus(); ++gpu) EXPECT_FALSE(context_active(gpu)) << gpu;
    EXPECT_EQ(context->counters().snapshot().failed, 0u);
    for (int gpu = 2; gpu < gpus(); ++gpu)
      EXPECT_EQ(context->resources().staging_bytes(MemoryId::gpu(gpu)), 0u);
  }
}

TEST_F(StagingPolicyTest, UsedExclusiveGpus_AreStagedOn) {
  driver_answers().exclusive = {0, 1, 2, 3};
  for (int gpu = 0; gpu < gpus(); ++gpu) context_of(gpu);
  auto context = make_context();
  context->prepare({wide()});
  const Traffic traffic(*context);
  EXPECT_TRUE(arrives(*context));
  EXPECT_TRUE(traffic.went_as(context->plan({wide()})));
}

TEST_F(StagingPolicyTest, NothingIsTakenOfAGpuWhoseMemoryIsFull) {
  driver_answers().little_memory = true;
  for (int gpu = 0; gpu < gpus(); ++gpu) context_of(gpu);
  auto context = make_context();
  context->prepare({wide()});
  EXPECT_TRUE(arrives(*context));
  for (int gpu = 0; gpu < gpus(); ++gpu)
    EXPECT_EQ(context->resources().staging_bytes(MemoryId::gpu(gpu)), 0u);
}

TEST_F(StagingPolicyTest, ReportSaysWhereAndWhyNot) {
  driver_answers().exclusive = {3};
  auto context = make_context();
  std::map<std::string, nlohmann::json> rows;
  const nlohmann::json devices = devices_json(*context);
  for (const auto& row : devices.at("staging")) rows[row.at("memory").get<std::string>()] = row;
  EXPECT_EQ(rows.size(), node().memories().size());
  EXPECT_EQ(rows.at("gpu2").at("allowed"), true);
  EXPECT_EQ(rows.at("gpu2").at("reason"), "allowed");
  EXPECT_EQ(rows.at("gpu2").at("bytes"), 0);
  EXPECT_EQ(rows.at("gpu3").at("allowed"), false);
  EXPECT_EQ(rows.at("gpu3").at("reason"),
            "its compute mode is EXCLUSIVE_PROCESS, and this process has no context there");
  EXPECT_FALSE(context_active(3));
}

}  // namespace
}  // namespace polypath::test
