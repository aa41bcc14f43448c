// Collectives over idle GPUs while calls of the driver fail, each in turn: those that take memory on
// idle GPUs, and those of calls. All ranks have the right bytes, or all have an error; none hangs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "driver/check.hpp"
#include "driver/fault_injection.hpp"
#include "exec/devices.hpp"
#include "group.hpp"
#include "schedule_calls.hpp"

namespace polypath::test {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr int kGpus = 4;
constexpr int kRanks = 2;
constexpr auto kTimeLimit = std::chrono::seconds(30);

const std::shared_ptr<const CudaDriver>& driver() { return group_node().driver; }

/// Some tiles over each relay.
PlannedCall small_call(Random& random, CollectiveOp op) {
  PlannedCall call;
  call.what.op = op;
  call.what.ranks = kRanks;
  call.what.count = 100'000;
  call.images = images_of(random, call.what);
  return call;
}

class RelayFaults : public testing::Test {
 protected:
  void SetUp() override {
    if (gpus_up_to(kGpus) < kGpus || in_virtual_time()) GTEST_SKIP() << "in functional mode";
  }

  /// Calls by two ranks, of which the first one takes memory on relays. What each rank threw.
  std::vector<std::string> run(const std::shared_ptr<const CudaDriver>& faulty,
                               const std::function<void()>& arm,
                               const std::function<void()>& disarm) {
    Random random(21);
    std::vector<PlannedCall> row;
    for (const CollectiveOp op :
         {CollectiveOp::allreduce, CollectiveOp::all_gather, CollectiveOp::allreduce})
      row.push_back(small_call(random, op));
    relayed_calls_ = 0;
    Devices devices(faulty, group_node().nvml, group_node().node);
    GroupOptions group_options{.time_limit = kTimeLimit};
    group_options.driver = faulty;
    Group group(kRanks, group_options);
    auto failures = group.failures([&](Communicator& comm) {
      CollectivesOptions options = kWithCopies;
      options.relays.devices = &devices;
      Collectives collectives(comm, options);
      const Stream stream(*driver(), comm.context());
      const CallRow memory(*driver(), row, comm.rank());
      comm.exchange({}, {});
      if (comm.rank() == 0) arm();
      comm.exchange({}, {});
      std::string error;
      try {
        for (std::size_t i = 0; i < row.size(); ++i)
          collectives.run(memory.call(row, i), stream.get(), AlgorithmOverride::relayed);
      } catch (const std::exception& thrown) {
        error = thrown.what();
      }
      POLYPATH_CHECK(*driver(), stream_synchronize(stream.get()));
      relayed_calls_ += collectives.counts().relayed;
      if (!error.empty()) throw Error(error);
      comm.check();
      const std::string wrong = memory.difference_of(row);
      if (!wrong.empty()) throw Error("wrong bytes: " + wrong);
      comm.exchange({}, {});
    });
    disarm();
    return failures;
  }
  static void expect_all_or_none(const std::vector<std::string>& failures) {
    EXPECT_THAT(failures, Each(Not(HasSubstr("wrong bytes"))));
    EXPECT_THAT(failures, testing::AnyOf(Each(IsEmpty()), Each(Not(IsEmpty()))));
  }

  std::atomic<std::uint64_t> relayed_calls_{0};
};

/// Some calls of each entry point in turn, and the first one.
TEST_F(RelayFaults, EachDriverCall_BytesRightOrAllFail) {
  constexpr std::uint64_t kOfEach = 4;
  FaultInjector injector(driver());
  std::map<std::string, std::uint64_t> calls;
  const auto without = run(
      injector.driver(), [&] { injector.clear(); }, [&] { calls = injector.calls_by_symbol(); });
  EXPECT_THAT(without, Each(IsEmpty()));
  EXPECT_EQ(relayed_calls_, 3u * kRanks);
  int carried_out = 0;
  int refused = 0;
  for (const auto& [symbol, count] : calls) {
    for (std::uint64_t nth = 1; nth <= count; nth += std::max<std::uint64_t>(1, count / kOfEach)) {
      SCOPED_TRACE(symbol + " " + std::to_string(nth));
      injector.clear();
      const auto failures = run(
          injector.driver(), [&] { injector.fail(symbol, nth, CUDA_ERROR_UNKNOWN); },
          [&] { injector.clear(); });
      expect_all_or_none(failures);
      ++(failures.front().empty() ? carried_out : refused);
    }
  }
  EXPECT_GT(carried_out, 0);
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace polypath::test
