// The kernels before and after an exchange between nodes, on the host: data of another call,
// or of a node that timed out, go no further.
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "comm/kernels/exchange_args.h"
#include "comm/kernels/wait_mutants.h"
#include "planting.hpp"
#include "simt/platform.cuh"
#include "simt/run.hpp"

namespace polypath::test {

constexpr std::uint32_t kNodes = 40;  // more than threads

/// As the network does.
SIMT_KERNEL(test_deliver, 32, ExchangeRecord* target, ExchangeRecord record) {
  if (simt::thread_index() == 0) simt::store(target, record);
}

namespace {

class ExchangeKernel : public testing::Test {
 protected:
  struct Memory {
    ExchangeRecord local{};
    std::array<ExchangeRecord, kNodes> remote{};
    wait_error status{};
    std::uint32_t abort_flag = 0;
    std::uint32_t reports = 0;
  };

  /// An exchange in which `record` comes from a node; what the run says.
  std::string run(std::uint32_t node, const ExchangeRecord& record) {
    ExchangeArgs args{};
    args.local = &memory_.local;
    args.remote = memory_.remote.data();
    args.nodes = kNodes;
    args.waits = 9;
    args.what = 0x1234;
    args.count = std::uint64_t{1} << 40;
    args.wait_ctx = {&memory_.abort_flag, 1'000'000'000, &memory_.status, &memory_.reports, 5};
    simt::RunOptions options;
    options.seed = node + 1;
    options.max_steps = 100'000;
    options.memory.push_back({&memory_, sizeof memory_, 0});
    return simt::run({{simt::launch("polypath_exchange_begin", 0, 1, 32, args),
                       simt::launch("test_deliver", 0, 1, 32, args.remote + node, record),
                       simt::launch("polypath_exchange_end", 0, 1, 32, args)}},
                     options);
  }

  Memory memory_;
};

constexpr ExchangeRecord kRight{0, 0x1234, std::uint64_t{1} << 40};

TEST_F(ExchangeKernel, RightRecords_LetTheStreamGo) {
  memory_.remote.fill({7, 7, 7});  // of an exchange before
  EXPECT_EQ("", run(3, kRight));
  EXPECT_EQ(0U, memory_.status.given_up);
  EXPECT_EQ(0U, memory_.local.given_up);
  EXPECT_EQ(kRight.what, memory_.local.what);
  EXPECT_EQ(kRight.count, memory_.local.count);
}

TEST_F(ExchangeKernel, NodeTimedOut_HoldsStreamUntilAbort) {
  for (const std::uint32_t node : {0U, 31U, 39U}) {
    memory_ = {};
    EXPECT_NE("", run(node, {2, kRight.what, kRight.count}));  // it waits without end
    EXPECT_EQ(wait_error::node_aborted, memory_.status.reason);
    EXPECT_EQ(node, memory_.status.waited_for_rank);
    memory_ = {};
    memory_.abort_flag = 1;
    EXPECT_EQ("", run(node, {2, kRight.what, kRight.count}));
    EXPECT_EQ(1U, memory_.status.given_up);
  }
}

TEST_F(ExchangeKernel, OtherCall_IsReported) {
  memory_.abort_flag = 1;
  EXPECT_EQ("", run(33, {0, kRight.what ^ 0x80000000U, kRight.count}));
  EXPECT_EQ(wait_error::mismatch, memory_.status.reason);
  EXPECT_EQ(5U, memory_.status.kernel);
  EXPECT_EQ(33U, memory_.status.waited_for_rank);
  EXPECT_EQ(std::uint64_t{9} << 32 | kRight.what, memory_.status.expected);
  EXPECT_EQ(kRight.what ^ 0x80000000U, memory_.status.seen);
  memory_ = {};
  memory_.abort_flag = 1;
  EXPECT_EQ("", run(2, {0, kRight.what, kRight.count + 1}));
  EXPECT_EQ(wait_error::mismatch, memory_.status.reason);
  EXPECT_EQ(kRight.count, memory_.status.offset);
  EXPECT_EQ(kRight.count + 1, memory_.status.bytes);
}

TEST_F(ExchangeKernel, OwnReport_IsToldAndHoldsTheStream) {
  memory_.reports = 3;
  EXPECT_NE("", run(1, kRight));
  EXPECT_EQ(3U, memory_.local.given_up);
}

TEST_F(ExchangeKernel, RecordsNotLookedAt_IsFound) {
  const Planting has_mutant(StreamWaitFault::records_not_looked_at);
  EXPECT_EQ("", run(1, {2, kRight.what, kRight.count}));
  EXPECT_EQ(0U, memory_.status.given_up);
}

}  // namespace
}  // namespace polypath::test
