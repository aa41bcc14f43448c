// Arguments that cannot be carried out: an error that names the argument, its address and its
// allocation, and nothing is issued.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "driver/fault_injection.hpp"
#include "support/simulated_test.hpp"

namespace polypath::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Matcher;

class BadInputTest : public SimulatedTest {
 protected:
  void SetUp() override {
    SimulatedTest::SetUp();
    if (IsSkipped()) return;
    context_ = std::make_unique<Context>(source(), OptionArguments{});
    stream_.emplace(stream_on(0));
  }

  void expect_refused(const Transfer& transfer, const Matcher<std::string>& message) {
    const Traffic traffic(*context_);
    try {
      context_->copy_async(transfer);
      ADD_FAILURE() << "was not refused";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), message);
    }
    EXPECT_EQ(traffic.failed(), 1u);
    EXPECT_EQ(traffic.split() + traffic.native(), 0u);
  }
  static std::string hex(CUdeviceptr address) { return fmt::format("{:#x}", address); }

  std::unique_ptr<Context> context_;
  std::optional<Stream> stream_;
};

TEST_F(BadInputTest, ZeroBytesIssueNothing) {
  FaultInjector calls(source().driver);
  NodeSource counted = source();
  counted.driver = calls.driver();
  Context context(counted, {});
  const Traffic traffic(context);
  calls.clear();
  context.copy_async({0, 0, 0, stream_->get()});
  context.copy_async({0x10, 0x10, 0, nullptr});
  EXPECT_EQ(calls.calls(), 0u);
  EXPECT_EQ(traffic.split() + traffic.native() + traffic.failed(), 0u);
}

TEST_F(BadInputTest, NullIsNamed) {
  const Payload data = payload({MemoryId::gpu(0), far(), kMiB});
  const auto [dst, src, bytes, stream, follows, is_exchange] = data.transfer(stream_->get());
  expect_refused({0, src, bytes, stream}, HasSubstr("dst is null"));
  expect_refused({dst, 0, bytes, stream}, HasSubstr("src is null"));
  EXPECT_TRUE(data.untouched());
}

TEST_F(BadInputTest, AddressesOfNoMemoryAreNamed) {
  const Payload data = payload({MemoryId::gpu(0), far(), kMiB});
  const auto [dst, src, bytes, stream, follows, is_exchange] = data.transfer(stream_->get());
  expect_refused({dst, 0x10, bytes, stream}, AllOf(HasSubstr("src"), HasSubstr("0x10")));
  expect_refused({0x10, src, bytes, stream}, AllOf(HasSubstr("dst"), HasSubstr("0x10")));

  for (const MemoryId memory : {MemoryId::gpu(0), far(), MemoryId::host(0)}) {
    CUdeviceptr freed = 0;
    {
      const TestBuffer gone(driver(), node(), memory, kMiB);
      freed = gone.address();
    }
    expect_refused({dst, freed, bytes, stream},
                   AllOf(HasSubstr("src"), HasSubstr(hex(freed)), HasSubstr("freed")));
    expect_refused({freed, src, bytes, stream},
                   AllOf(HasSubstr("dst"), HasSubstr(hex(freed)), HasSubstr("freed")));
  }
  EXPECT_TRUE(data.untouched());
}

TEST_F(BadInputTest, RangesPastTheirAllocationAreNamed) {
  for (const MemoryId memory : {MemoryId::gpu(0), far(), MemoryId::host(0)}) {
    const TestBuffer small(driver(), node(), memory, kMiB + 1);
    const TestBuffer large(driver(), node(), MemoryId::gpu(gpus() - 1), 4 * kMiB);
    const auto allocation = fmt::format("[{:#x}, +{})", small.address(), small.size());
    for (const std::uint64_t bytes : {kMiB + 1, 2 * kMiB}) {
      const CUdeviceptr inside = small.address() + kKiB;
      expect_refused({large.address(), inside, bytes, stream_->get()},
                     AllOf(HasSubstr("src"), HasSubstr(hex(inside)), HasSubstr(allocation)));
      expect_refused({inside, large.address(), bytes, stream_->get()},
                     AllOf(HasSubstr("dst"), HasSubstr(hex(inside)), HasSubstr(allocation)));
    }
  }
}

TEST_F(BadInputTest, OverlapIsNamed) {
  const TestBuffer buffer(driver(), node(), MemoryId::gpu(0), 4 * kMiB);
  for (const std::uint64_t distance : {std::uint64_t{0}, std::uint64_t{1}, 2 * kMiB - 1}) {
    const CUdeviceptr low = buffer.address();
    const CUdeviceptr high = buffer.address() + distance;
    const auto both = AllOf(HasSubstr("overlap"), HasSubstr(hex(low)), HasSubstr(hex(high)));
    expect_refused({low, high, 2 * kMiB, stream_->get()}, both);
    expect_refused({high, low, 2 * kMiB, stream_->get()}, both);
  }
  // Neighbours do not overlap.
  context_->copy_async({buffer.address() + 2 * kMiB, buffer.address(), 2 * kMiB, stream_->get()});
  synchronize(stream_->get());
}

TEST_F(BadInputTest, BadGroupMember_IssuesNothing) {
  const Payload first = payload({MemoryId::gpu(0), far(), 2 * kMiB});
  const Payload last = payload({MemoryId::gpu(0), far(), 100});
  const std::vector<Transfer> transfers = {first.transfer(stream_->get()),
                                           {first.transfer(nullptr).dst, 0, 100, stream_->get()},
                                           last.transfer(stream_->get())};
  const Traffic traffic(*context_);
  try {
    context_->group_copy_async(transfers);
    ADD_FAILURE() << "was not refused";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("transfer 1"), HasSubstr("src is null")));
  }
  synchronize(stream_->get());
  EXPECT_TRUE(first.untouched());
  EXPECT_TRUE(last.untouched());
  EXPECT_EQ(traffic.split() + traffic.native(), 0u);
}

TEST_F(BadInputTest, PlansAndPreparationNameUnknownMemories) {
  const MemoryId missing = MemoryId::gpu(gpus());
  for (const std::vector<Request>& requests :
       {std::vector<Request>{{missing, MemoryId::gpu(0), kMiB}},
        std::vector<Request>{{MemoryId::gpu(0), missing, kMiB}}}) {
    const auto expect_named = [&](auto&& body) {
      try {
        body();
        ADD_FAILURE() << "was not refused";
      } catch (const InvalidArgument& error) {
        EXPECT_THAT(error.what(), HasSubstr(to_string(missing)));
      }
    };
    expect_named([&] { static_cast<void>(context_->plan(requests)); });
    expect_named([&] { context_->prepare(requests); });
  }
  EXPECT_THROW(static_cast<void>(context_->plan({{MemoryId::gpu(0), MemoryId::gpu(0), kMiB}})),
               InvalidArgument);
}

}  // namespace
}  // namespace polypath::test
