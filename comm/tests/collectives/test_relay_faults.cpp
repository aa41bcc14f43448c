// Collectives over idle GPUs while calls of the driver fail: each call of the driver of a call in
// turn, and events of relays from then on. All ranks have the right bytes, or all have an error; none
// hangs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
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

/// Some chunks over each relay.
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
    devices_.emplace(driver(), group_node().nvml, group_node().node);
  }

  /// One call without faults, and three from `arm` on, which rank 0 calls. What each rank threw.
  std::vector<std::string> run(const std::shared_ptr<const CudaDriver>& faulty,
                               const std::function<void()>& arm,
                               const std::function<void()>& disarm) {
    Random random(21);
    std::vector<PlannedCall> row;
    for (const CollectiveOp op : {CollectiveOp::allreduce, CollectiveOp::allreduce,
                                  CollectiveOp::all_gather, CollectiveOp::allreduce})
      row.push_back(small_call(random, op));
    relayed_copies_ = 0;
    GroupOptions group_options{.time_limit = kTimeLimit};
    group_options.driver = faulty;
    Group group(kRanks, group_options);
    auto failures = group.failures([&](Communicator& comm) {
      CollectivesOptions options = kWithCopies;
      options.relays.devices = &*devices_;
      Collectives collectives(comm, options);
      const Stream stream(*driver(), comm.context());
      const CallRow memory(*driver(), row, comm.rank());
      const auto call = [&](std::size_t i) {
        collectives.run(memory.call(row, i), stream.get(), AlgorithmOverride::relayed);
      };
      call(0);
      POLYPATH_CHECK(*driver(), stream_synchronize(stream.get()));
      const std::uint64_t before = collectives.relayed_copies();
      comm.exchange({}, {});
      if (comm.rank() == 0) arm();
      comm.exchange({}, {});
      std::string error;
      try {
        for (std::size_t i = 1; i < row.size(); ++i) call(i);
      } catch (const std::exception& thrown) {
        error = thrown.what();
      }
      POLYPATH_CHECK(*driver(), stream_synchronize(stream.get()));
      relayed_copies_ += collectives.relayed_copies() - before;
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

  std::optional<Devices> devices_;
  std::atomic<std::uint64_t> relayed_copies_{0};
};

/// Some calls of each entry point in turn, and the first one.
TEST_F(RelayFaults, EachDriverCall_BytesRightOrAllFail) {
  constexpr std::uint64_t kOfEach = 4;
  FaultInjector injector(driver());
  std::map<std::string, std::uint64_t> calls;
  const auto without = run(
      injector.driver(), [&] { injector.clear(); }, [&] { calls = injector.calls_by_symbol(); });
  EXPECT_THAT(without, Each(IsEmpty()));
  EXPECT_GT(relayed_copies_, 0u);
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

/// Events on streams of the idle GPUs.
std::atomic<int> records_left{0};
CUresult record_on_relay(CUevent event, CUstream stream) {
  const CudaDriver& node = *driver();
  CUcontext context = nullptr;
  CUdevice gpu = 0;
  CUcontext before = nullptr;
  node.ctx_get_current(&before);
  node.stream_get_ctx(stream, &context);
  node.ctx_set_current(context);
  node.ctx_get_device(&gpu);
  node.ctx_set_current(before);
  if (gpu >= kRanks && records_left.fetch_sub(1) <= 0) return CUDA_ERROR_UNKNOWN;
  return node.event_record(event, stream);
}

/// Their copies are under way by then, and nothing can wait for them: a second copy of the bytes
/// could be followed by the first one.
class RelayEvents : public RelayFaults, public testing::WithParamInterface<int> {};

TEST_P(RelayEvents, AllFail_ErrorsOnAllRanks) {
  auto failing = std::make_shared<CudaDriver>(*driver());
  failing->event_record = &record_on_relay;
  records_left = 1 << 30;
  const auto failures =
      run(failing, [] { records_left = GetParam(); }, [] { records_left = 1 << 30; });
  EXPECT_THAT(failures, Each(Not(IsEmpty())));
  EXPECT_THAT(failures, Each(Not(HasSubstr("wrong bytes"))));
}

INSTANTIATE_TEST_SUITE_P(After, RelayEvents, testing::Values(0, 1, 6, 13),
                         [](const auto& each) { return std::to_string(each.param); });

/// One fails: it is recorded once more, and no relay is lost.
TEST_F(RelayFaults, SingleEventFails_RelaysGoOn) {
  std::vector<std::string> failures = run(driver(), [] {}, [] {});
  const std::uint64_t expected = relayed_copies_;
  EXPECT_THAT(failures, Each(IsEmpty()));
  auto failing = std::make_shared<CudaDriver>(*driver());
  failing->event_record = [](CUevent event, CUstream stream) {
    const CUresult result = record_on_relay(event, stream);
    if (result != CUDA_SUCCESS) records_left = 1 << 30;
    return result;
  };
  records_left = 1 << 30;
  failures = run(failing, [] { records_left = 2; }, [] {});
  EXPECT_THAT(failures, Each(IsEmpty()));
  EXPECT_GT(expected, 0u);
  EXPECT_EQ(relayed_copies_, expected);
}

}  // namespace
}  // namespace polypath::test
