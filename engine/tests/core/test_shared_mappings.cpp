// Memory that was mapped for its own GPU alone: where it may be shared, transfers take the routes
// of any other memory, and each refusal of the driver costs a route at most.
#include "core/shared_mappings.hpp"

#include <cmath>
#include <cstring>
#include <set>

#include "driver/fault_injection.hpp"
#include "mapped_buffer.hpp"
#include "support/simulated_test.hpp"

namespace polypath::test {
namespace {

constexpr auto kNone = CU_MEM_ACCESS_FLAGS_PROT_NONE;
constexpr auto kRead = CU_MEM_ACCESS_FLAGS_PROT_READ;
constexpr auto kAll = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;

class SharedMappingsTest : public SimulatedTest {
 protected:
  static constexpr std::uint64_t kPart = 8 * kMiB;

  void SetUp() override {
    SimulatedTest::SetUp();
    if (IsSkipped()) return;
    Context planning(source(), arguments_);
    const Plan plan = planning.plan({from_host()});
    for (const RouteShare& share : plan.transfers.front().routes)
      if (share.route.staged() && share.route.via.is_gpu()) relays_.insert(share.route.via.index);
    if (relays_.empty()) GTEST_SKIP() << "no GPU stages";
    faults_.emplace(source().driver);
    buffer_.emplace(driver(), kSplitBytes, kPart);
    host_.emplace(driver(), node(), MemoryId::host(0), kSplitBytes);
    stream_.emplace(stream_on(0));
  }

  static Request from_host() { return {MemoryId::host(0), MemoryId::gpu(0), kSplitBytes}; }
  [[nodiscard]] std::unique_ptr<Context> make_context() const {
    NodeSource source = this->source();
    source.driver = faults_->driver();
    return std::make_unique<Context>(source, arguments_);
  }
  [[nodiscard]] Transfer transfer() const {
    return {buffer_->address(), host_->address(), kSplitBytes, stream_->get(), false, false};
  }
  /// Copies other contents to the mapped memory and back natively, and compares every byte.
  testing::AssertionResult arrives(Context& context) {
    const std::uint64_t seed = random_();
    host_->fill(seed);
    POLYPATH_CHECK(driver(), memset_d8_async(buffer_->address(), 0xEE, kSplitBytes, nullptr));
    POLYPATH_CHECK(driver(), ctx_synchronize());
    copy(context, transfer());
    synchronize(stream_->get());
    host_->poison();
    POLYPATH_CHECK(driver(),
                   memcpy_async(host_->address(), buffer_->address(), kSplitBytes, stream_->get()));
    synchronize(stream_->get());
    if (const auto at = host_->first_difference(seed))
      return testing::AssertionFailure() << "byte " << *at;
    return testing::AssertionSuccess();
  }
  [[nodiscard]] std::set<int> gpus_granted() const {
    std::set<int> gpus;
    for (int gpu = 1; gpu < this->gpus(); ++gpu)
      if (buffer_->access(gpu) == kAll) gpus.insert(gpu);
    return gpus;
  }

  OptionArguments arguments_{{"load", "off"}, {"prepare", "wait"}};
  std::set<int> relays_;
  std::optional<FaultInjector> faults_;
  std::optional<MappedBuffer> buffer_;
  std::optional<TestBuffer> host_;
  std::optional<Stream> stream_;
};

TEST_F(SharedMappingsTest, SharedMemory_TakesThePlansRoutes) {
  const auto context = make_context();
  context->prepare({from_host()});
  context->share_mapping(buffer_->address(), kSplitBytes);
  EXPECT_EQ(std::set<int>{}, gpus_granted()) << "before a transfer";
  const Traffic traffic(*context);
  EXPECT_TRUE(arrives(*context));
  EXPECT_TRUE(traffic.went_as(context->plan({from_host()})));
  EXPECT_EQ(relays_, gpus_granted());
  // Neighbouring mappings are one call.
  EXPECT_EQ(relays_.size(), context->shared_mappings().counts().granted);
  EXPECT_TRUE(arrives(*context));
  EXPECT_EQ(relays_.size(), context->shared_mappings().counts().granted);
}

// Contexts and staging memory are made for such memory as for any other.
TEST_F(SharedMappingsTest, RoutesAreMadeReadyForIt) {
  const auto context = make_context();
  context->share_mapping(buffer_->address(), kSplitBytes);
  const Traffic traffic(*context);
  EXPECT_TRUE(arrives(*context));
  EXPECT_TRUE(traffic.went_as(context->plan({from_host()})));
}

TEST_F(SharedMappingsTest, TakesAsLongAsPlainMemory) {
  if (!source().virtual_time) GTEST_SKIP() << "real time";
  const auto context = make_context();
  context->prepare({from_host()});
  context->share_mapping(buffer_->address(), kSplitBytes);
  const Payload plain = payload({MemoryId::host(0), MemoryId::gpu(0), kSplitBytes});
  const auto clock_us = driver_function<double()>(driver(), "polypath_sim_clock_us");
  const auto time = [&](const Transfer& what) {
    copy(*context, what);
    synchronize(stream_->get());
    const double before = clock_us();
    copy(*context, what);
    synchronize(stream_->get());
    return clock_us() - before;
  };
  const double plain_us = time(plain.transfer(stream_->get()));
  EXPECT_LE(time(transfer()) * 0.95, plain_us);
}

TEST_F(SharedMappingsTest, OnlyWhereItIsAllowed) {
  const auto context = make_context();
  context->prepare({from_host()});
  {
    const Traffic traffic(*context);
    EXPECT_TRUE(arrives(*context));
    EXPECT_GT(traffic.excluded(ExclusionReason::unreachable), 0U);
  }
  // A part of it is not enough.
  context->share_mapping(buffer_->address() + kPart, kSplitBytes - kPart);
  EXPECT_TRUE(arrives(*context));
  EXPECT_EQ(std::set<int>{}, gpus_granted());
  context->share_mapping(buffer_->address(), kPart);
  context->unshare_mapping(buffer_->address() + kPart, kPart);
  EXPECT_TRUE(arrives(*context));
  EXPECT_EQ(std::set<int>{}, gpus_granted());
  context->share_mapping(buffer_->address() + kPart, kPart);
  EXPECT_TRUE(arrives(*context));
  EXPECT_EQ(relays_, gpus_granted());
}

TEST_F(SharedMappingsTest, SettingOff_GivesNothing) {
  arguments_.emplace_back("share_mappings", "off");
  const auto context = make_context();
  context->prepare({from_host()});
  context->share_mapping(buffer_->address(), kSplitBytes);
  EXPECT_TRUE(arrives(*context));
  EXPECT_EQ(std::set<int>{}, gpus_granted());
}

TEST_F(SharedMappingsTest, NewMemoryAtTheAddress_IsNotShared) {
  const auto context = make_context();
  context->prepare({from_host()});
  context->share_mapping(buffer_->address(), kSplitBytes);
  EXPECT_TRUE(arrives(*context));
  context->unshare_mapping(buffer_->address(), kSplitBytes);
  buffer_->unmap();
  buffer_->map();
  EXPECT_TRUE(arrives(*context));
  EXPECT_EQ(std::set<int>{}, gpus_granted());
  context->share_mapping(buffer_->address(), kSplitBytes);
  EXPECT_TRUE(arrives(*context));
  EXPECT_EQ(relays_, gpus_granted());
}

TEST_F(SharedMappingsTest, MappingThatAGpuMayRead_StaysSo) {
  const int reader = *relays_.begin();
  buffer_->set_access(reader, kRead, kPart, kPart);
  const auto context = make_context();
  context->prepare({from_host()});
  context->share_mapping(buffer_->address(), kSplitBytes);
  EXPECT_TRUE(arrives(*context));
  EXPECT_EQ(kRead, buffer_->access(reader, kPart));
  EXPECT_EQ(kNone, buffer_->access(reader));
}

TEST_F(SharedMappingsTest, ProgramsAccessToAPart_IsLeft) {
  const int other = *relays_.begin();
  buffer_->set_access(other, kAll, kPart, kPart);
  const auto context = make_context();
  context->prepare({from_host()});
  context->share_mapping(buffer_->address(), kSplitBytes);
  const Traffic traffic(*context);
  EXPECT_TRUE(arrives(*context));
  EXPECT_TRUE(traffic.went_as(context->plan({from_host()})));
  // Before and after what the program has given.
  EXPECT_EQ(relays_.size() + 1, context->shared_mappings().counts().granted);
}

TEST_F(SharedMappingsTest, RefusedGpu_IsLeftOutAndNotAskedAgain) {
  for (std::size_t nth = 1; nth <= relays_.size(); ++nth) {
    SCOPED_TRACE(nth);
    const auto context = make_context();
    context->prepare({from_host()});
    context->share_mapping(buffer_->address(), kSplitBytes);
    faults_->clear();
    faults_->fail("cuMemSetAccess", nth, CUDA_ERROR_OUT_OF_MEMORY);
    const Traffic traffic(*context);
    EXPECT_TRUE(arrives(*context));
    EXPECT_EQ(1U, traffic.excluded(ExclusionReason::unreachable));
    EXPECT_EQ(0U, traffic.failed());
    EXPECT_EQ("cuMemSetAccess", faults_->last_failed());
    EXPECT_EQ(relays_.size() - 1, gpus_granted().size());
    EXPECT_EQ(1U, context->shared_mappings().counts().refused);
    faults_->clear();
    EXPECT_TRUE(arrives(*context));
    EXPECT_EQ(0U, faults_->calls_by_symbol()["cuMemSetAccess"]);
    // Anew, it is.
    context->unshare_mapping(buffer_->address(), kSplitBytes);
    context->share_mapping(buffer_->address(), kSplitBytes);
    EXPECT_TRUE(arrives(*context));
    EXPECT_EQ(relays_, gpus_granted());
    buffer_->unmap();
    buffer_->map();
  }
}

// A call that takes longer than it saves is made once it would have paid.
TEST_F(SharedMappingsTest, SmallTransfers_ShareOnceThatPays) {
  const auto context = make_context();
  Request small = from_host();
  small.bytes = min_split(*context, small.src, small.dst).value_or(kMiB);
  context->prepare({small});
  context->share_mapping(buffer_->address(), kSplitBytes);
  const Plan plan = context->plan({small});
  const double saved_us = (plan.native_us - plan.predicted_us) /
                          static_cast<double>(plan.transfers.front().routes.size() - 1);
  ASSERT_GT(saved_us, 0);
  const double parts = std::ceil(static_cast<double>(small.bytes) / static_cast<double>(kPart));
  const int copies = static_cast<int>(std::ceil(parts * SharedMappings::cost_us(kPart) / saved_us));
  ASSERT_GT(copies, 1);
  // Instead of a relay without access another one may be tried, whose part saves more.
  const int relay = plan.transfers.front().routes.back().route.via.index;
  Transfer each = transfer();
  each.bytes = small.bytes;
  for (int i = 1; i <= copies; ++i) {
    SCOPED_TRACE(i);
    EXPECT_FALSE(gpus_granted().contains(relay));
    copy(*context, each);
    synchronize(stream_->get());
  }
  EXPECT_TRUE(gpus_granted().contains(relay));
}

TEST_F(SharedMappingsTest, EachCallFails_BytesAreRight) {
  arguments_.emplace_back("chunks", "2");  // few chunks make few calls
  const auto context = make_context();
  context->prepare({from_host()});
  std::uint64_t calls = 1;
  for (std::uint64_t failing = 0; failing <= calls; ++failing) {
    context->share_mapping(buffer_->address(), kSplitBytes);
    host_->fill(failing);
    POLYPATH_CHECK(driver(), memset_d8_async(buffer_->address(), 0xEE, kSplitBytes, nullptr));
    POLYPATH_CHECK(driver(), ctx_synchronize());
    faults_->clear();
    if (failing > 0) faults_->fail_call(failing, CUDA_ERROR_UNKNOWN);
    try {
      context->copy_async(transfer());
    } catch (const Error& error) {
      EXPECT_EQ("cuMemcpyAsync", faults_->last_failed()) << error.what();
    }
    if (failing == 0) calls = std::min<std::uint64_t>(faults_->calls(), 150);
    SCOPED_TRACE("call " + std::to_string(failing) + ": " + faults_->last_failed());
    faults_->clear();
    POLYPATH_CHECK(driver(), ctx_set_current(context_of(0)));
    ASSERT_TRUE(completes(stream_->get()));
    host_->poison();
    POLYPATH_CHECK(driver(),
                   memcpy_async(host_->address(), buffer_->address(), kSplitBytes, stream_->get()));
    synchronize(stream_->get());
    EXPECT_FALSE(host_->first_difference(failing).has_value());
    context->unshare_mapping(buffer_->address(), kSplitBytes);
    buffer_->unmap();
    buffer_->map();
    if (HasFailure()) return;
  }
}

TEST_F(SharedMappingsTest, OtherMemory_IsRefused) {
  const auto context = make_context();
  const TestBuffer plain(driver(), node(), MemoryId::gpu(0), kMiB);
  EXPECT_THROW(context->share_mapping(plain.address(), kMiB), InvalidArgument);
  EXPECT_THROW(context->share_mapping(host_->address(), kMiB), InvalidArgument);
  EXPECT_THROW(context->share_mapping(0, kMiB), InvalidArgument);
  EXPECT_THROW(context->share_mapping(buffer_->address(), 0), InvalidArgument);
  EXPECT_NO_THROW(context->unshare_mapping(plain.address(), kMiB));
}

TEST_F(SharedMappingsTest, RangesMergeAndSplit) {
  SharedMappings shared(true);
  const auto mappings = buffer_->mappings();
  const auto may = [&](std::size_t i) { return shared.may_share(driver(), {&mappings[i], 1}); };
  EXPECT_FALSE(may(0));
  shared.add(mappings[2], kPart);
  shared.add(mappings[0], kPart);
  shared.add(mappings[1], kPart);
  shared.add(mappings[1], 2 * kPart);
  EXPECT_TRUE(may(0) && may(1) && may(2));
  EXPECT_FALSE(may(3));
  EXPECT_FALSE(shared.may_share(driver(), mappings));
  shared.remove(mappings[1], kPart);
  EXPECT_TRUE(may(0) && !may(1) && may(2));
  EXPECT_FALSE(shared.give(driver(), mappings, *relays_.begin(), 1e9));
  EXPECT_TRUE(shared.give(driver(), {&mappings[2], 1}, *relays_.begin(), 1e9));
  EXPECT_EQ(kAll, buffer_->access(*relays_.begin(), 2 * kPart));
  EXPECT_EQ(kNone, buffer_->access(*relays_.begin(), 0));
  shared.remove(0, ~std::uint64_t{0});
  EXPECT_FALSE(may(0) || may(2));
}

}  // namespace
}  // namespace polypath::test
