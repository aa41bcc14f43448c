// Collective calls that are not right, or not alike on all ranks: what is refused, and that no rank
// has a wrong result without an error.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <chrono>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <thread>

#include "base/error.hpp"
#include "collectives/call_arguments.hpp"
#include "driver/check.hpp"
#include "group.hpp"
#include "schedule_calls.hpp"

namespace polypath::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

class UnlikeCalls : public testing::Test {
 protected:
  static int ranks() { return gpus_up_to(3); }
  void SetUp() override {
    NEEDS_GPUS(2);
    group_.emplace(ranks());
  }
  [[nodiscard]] static const CudaDriver& driver() { return *group_node().driver; }

  std::optional<Group> group_;
};

/// Long enough that no rank is late on a busy machine, and no wait for a test that fails.
const GroupOptions kLimited{.time_limit = std::chrono::seconds(30)};

/// A rank's memory, of which half is sent and half is received.
struct Buffers {
  static constexpr std::uint64_t kBytes = 4 << 20;
  explicit Buffers(Communicator& comm)
      : memory(comm.driver(), 2 * kBytes), stream(comm.driver(), comm.context()) {}
  [[nodiscard]] CollectiveCall call(CollectiveOp op, std::uint64_t count) const {
    return {.op = op, .count = count, .send = memory.address(), .recv = memory.address() + kBytes};
  }
  DeviceBytes memory;
  Stream stream;
};

/// The watchdogs take some time for it. Throws where it does not come: a test fails then, and does
/// not hang.
void wait_for_abort(const Communicator& comm) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(40);
  while (!comm.aborted()) {
    if (std::chrono::steady_clock::now() > deadline) throw Error("there is no abort");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// Until the abort has come; then throws why.
void expect_abort(Communicator& comm, CUstream stream) {
  POLYPATH_CHECK(comm.driver(), stream_synchronize(stream));
  wait_for_abort(comm);
  comm.check();
}

TEST_F(UnlikeCalls, WrongBuffer_IsNamedWithTheRank) {
  const CurrentContext current(driver(), (*group_)[0].context());
  const DeviceBytes device(driver(), 4096);
  std::vector<std::byte> host(4096);
  const CUdeviceptr ours = device.address();
  const auto on_host = std::bit_cast<CUdeviceptr>(host.data());
  const auto refused = [&](const CollectiveCall& call, const std::string& why) {
    try {
      require_alike(call, 1, 4);
      require_buffers(driver(), call, {1, 4, 0});
      ADD_FAILURE() << "not refused: " << why;
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr(why), HasSubstr("rank 1")));
    }
  };
  const auto call_with = [&](CUdeviceptr send, CUdeviceptr recv, std::uint64_t count,
                             CollectiveOp op = CollectiveOp::allreduce) {
    return CollectiveCall{.op = op, .count = count, .send = send, .recv = recv};
  };
  refused(call_with(0, ours, 1024), "send is null");
  refused(call_with(ours + 2, ours, 1024), "send is not aligned");
  refused(call_with(on_host, ours, 1024), "send is no memory of a GPU");
  refused(call_with(ours, 0, 1024), "recv is null");
  refused(call_with(ours, on_host, 1024), "recv is no memory of a GPU");
  refused(call_with(ours, ours + 16, 1024), "recv has 4080 bytes to its end, and 4096 are needed");
  refused(call_with(ours, ours + 16, 512), "send and recv overlap");
  refused(call_with(ours, ours, (std::uint64_t{1} << 62U) + 1), "is too large");
  refused(call_with(ours, ours + 16, 64, CollectiveOp::all_to_all), "send and recv overlap");
  refused(call_with(ours, ours, std::uint64_t{1} << 61U, CollectiveOp::all_to_all), "is too large");
  // As far as that the end is before the begin.
  refused(call_with(ours + 2048, ours, ~std::uint64_t{0} / 16, CollectiveOp::all_to_all),
          "send has 2048 bytes to its end");
  refused(call_with(ours, ours, 64, CollectiveOp::all_gather), "send and recv overlap");
  CollectiveCall rooted = call_with(ours, ours, 64, CollectiveOp::broadcast);
  rooted.root = 4;
  refused(rooted, "is none of");
}

TEST_F(UnlikeCalls, CallRefusedByOneRank_EndsOnAll) {
  struct Case {
    const char* name;
    void (*spoil)(CollectiveCall& call, CUstream& stream, CUdeviceptr others, CUstream of_other);
    const char* why;
  };
  static std::byte host[4096];
  const std::vector<Case> cases{
      {"host memory",
       [](auto& call, auto&, auto, auto) { call.send = std::bit_cast<CUdeviceptr>(&host[0]); },
       "send is no memory of a GPU"},
      {"alignment", [](auto& call, auto&, auto, auto) { call.recv += 2; }, "recv is not aligned"},
      {"memory of another GPU", [](auto& call, auto&, auto others, auto) { call.recv = others; },
       "and the rank's is gpu"},
      {"stream of another GPU", [](auto&, auto& stream, auto, auto other) { stream = other; },
       "stream is one of gpu"},
  };
  const int last = ranks() - 1;
  for (const Case& each : cases) {
    SCOPED_TRACE(each.name);
    Group group(ranks(), kLimited);
    std::atomic<CUdeviceptr> others{0};
    std::atomic<CUstream> of_other{nullptr};
    const auto failures = group.failures([&](Communicator& comm) {
      Collectives collectives(comm, kWithCopies);
      const Buffers buffers(comm);
      if (comm.rank() == 0) {
        others = buffers.memory.address();
        of_other = buffers.stream.get();
      }
      comm.exchange({}, {});
      CollectiveCall call = buffers.call(CollectiveOp::allreduce, 1000);
      CUstream stream = buffers.stream.get();
      if (comm.rank() == last) {
        each.spoil(call, stream, others, of_other);
        EXPECT_THROW(collectives.run(call, stream), InvalidArgument);
        // Its next call would meet the first one of the others.
        EXPECT_THROW(collectives.run(buffers.call(CollectiveOp::allreduce, 1000), stream),
                     CommunicatorError);
      } else {
        try {
          collectives.run(call, stream);
        } catch (const CommunicatorError&) {
          // the last rank was first
        }
      }
      wait_for_abort(comm);
      POLYPATH_CHECK(driver(), stream_synchronize(buffers.stream.get()));
      comm.check();
    });
    EXPECT_THAT(
        failures,
        Each(AllOf(HasSubstr(fmt::format("rank {} could not issue its part of call 1", last)),
                   HasSubstr(each.why))));
  }
}

/// How a call is carried out: the family or the schedule.
struct Way {
  const char* name;
  std::uint64_t count;
  AlgorithmOverride choice;
  bool is_captured;
};
void PrintTo(const Way& way, std::ostream* to) { *to << way.name; }

class UnlikeCallsBy : public UnlikeCalls, public testing::WithParamInterface<Way> {};

TEST_P(UnlikeCallsBy, EndOnAllRanksWithBothNamed) {
  const Way& way = GetParam();
  if (way.is_captured && driver().stream_begin_capture == nullptr) GTEST_SKIP() << "no capture";
  struct Change {
    void (*change)(CollectiveCall& call);
    std::string name;
  };
  const std::string same = std::to_string(way.count);
  const std::vector<Change> changes{
      {[](CollectiveCall& call) { call.count -= 4; },
       "allreduce of " + std::to_string(way.count - 4) + " float32 by sum"},
      {[](CollectiveCall& call) { call.type = DataType::int32; },
       "allreduce of " + same + " int32 by sum"},
      {[](CollectiveCall& call) { call.operation = Operator::max; },
       "allreduce of " + same + " float32 by max"},
      {[](CollectiveCall& call) {
         call.op = CollectiveOp::broadcast;
         call.root = 1;
       },
       "broadcast of " + same + " float32 from rank 1"},
  };
  for (const Change& change : changes) {
    SCOPED_TRACE(change.name);
    Group group(ranks(), kLimited);
    const auto failures = group.failures([&](Communicator& comm) {
      Collectives collectives(comm, kWithCopies);
      const Buffers buffers(comm);
      const CollectiveCall right = buffers.call(CollectiveOp::allreduce, way.count);
      CollectiveCall call = right;
      if (comm.rank() == 1) change.change(call);
      const auto choice =
          call.op == CollectiveOp::allreduce ? way.choice : AlgorithmOverride::planned;
      const CUstream stream = buffers.stream.get();
      collectives.run(right, stream, way.choice);
      POLYPATH_CHECK(driver(), stream_synchronize(stream));
      if (way.is_captured) {
        const CapturedRow first(driver(), stream,
                                [&] { collectives.run(right, stream, way.choice); });
        const CapturedRow second(driver(), stream, [&] { collectives.run(call, stream, choice); });
        first.launch(stream);
        second.launch(stream);
        expect_abort(comm, stream);
      } else {
        try {
          collectives.run(call, stream, choice);
        } catch (const CommunicatorError&) {
          // Others were first; what was issued still runs.
        }
        expect_abort(comm, stream);
      }
    });
    const std::string text = "allreduce of " + same + " float32 by sum";
    EXPECT_THAT(failures, Each(AllOf(HasSubstr(text), HasSubstr(change.name), HasSubstr("call"))));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Of, UnlikeCallsBy,
    testing::Values(Way{"cells", 1000, AlgorithmOverride::kernels, false},
                    Way{"channels", 300'000, AlgorithmOverride::kernels, false},
                    Way{"copies", 100'000, AlgorithmOverride::pairwise, false},
                    Way{"mixed", 100'000, AlgorithmOverride::host, false},
                    Way{"captured_cells", 1000, AlgorithmOverride::kernels, true},
                    Way{"captured_copies", 100'000, AlgorithmOverride::pairwise, true}),
    [](const auto& param_info) { return std::string(param_info.param.name); });

TEST_F(UnlikeCalls, CallSkippedByOneRank_EndsTheNext) {
  struct Skip {
    const char* name;
    void (*skip)(CollectiveCall& call);
  };
  const std::vector<Skip> skips{
      {"no elements", [](CollectiveCall& call) { call.count = 0; }},
      {"refused root",
       [](CollectiveCall& call) {
         call.op = CollectiveOp::reduce;
         call.root = ranks();
       }},
  };
  for (const Skip& each : skips) {
    SCOPED_TRACE(each.name);
    Group group(ranks(), kLimited);
    const auto failures = group.failures([&](Communicator& comm) {
      Collectives collectives(comm, kWithCopies);
      const Buffers buffers(comm);
      const CollectiveCall right = buffers.call(CollectiveOp::allreduce, 500);
      CollectiveCall skipped = right;
      each.skip(skipped);
      const auto skip = [&] {
        if (skipped.count == 0)
          collectives.run(skipped, buffers.stream.get());
        else
          EXPECT_THROW(collectives.run(skipped, buffers.stream.get()), InvalidArgument);
      };
      // All alike: that is no error.
      skip();
      collectives.run(right, buffers.stream.get());
      POLYPATH_CHECK(driver(), stream_synchronize(buffers.stream.get()));
      comm.check();
      comm.exchange({}, {});
      if (comm.rank() == 0) skip();
      collectives.run(right, buffers.stream.get());
      expect_abort(comm, buffers.stream.get());
    });
    EXPECT_THAT(failures, Each(AllOf(HasSubstr("allreduce of 500 float32 by sum"),
                                     HasSubstr("their calls before this one"))));
  }
}

TEST_F(UnlikeCalls, RefusedBuffers_AreRetriedOnRequest) {
  static std::byte host[4096];
  Random random(12);
  PlannedCall planned;
  planned.what.ranks = static_cast<unsigned>(ranks());
  planned.what.count = 1000;
  planned.images = images_of(random, planned.what);
  group_->run([&](Communicator& comm) {
    Collectives collectives(comm, {.max_blocks = 4, .retries_buffers = true});
    const Stream stream(driver(), comm.context());
    const std::vector<PlannedCall> row{planned};
    for (int turn = 0; turn < comm.size(); ++turn) {
      const CallRow rank_row(driver(), row, comm.rank());
      const CollectiveCall call = rank_row.call(row, 0);
      if (comm.rank() == turn) {
        CollectiveCall wrong = call;
        wrong.send = std::bit_cast<CUdeviceptr>(&host[0]);
        EXPECT_THROW(collectives.run(wrong, stream.get()), InvalidArgument);
      }
      collectives.run(call, stream.get());
      POLYPATH_CHECK(driver(), stream_synchronize(stream.get()));
      comm.check();
      rank_row.expect_done(row);
    }
    comm.exchange({}, {});
  });
}

TEST_F(UnlikeCalls, RefusedAlgorithm_LeavesCommUsable) {
  group_->run([&](Communicator& comm) {
    const auto other = comm.split(0, comm.rank());
    const Collectives first(comm, {.max_blocks = 4});
    // It leaves copies to the first of its GPU.
    Collectives collectives(*other, {.max_blocks = 4, .reserved_sms = 1});
    const Buffers buffers(comm);
    const CollectiveCall call = buffers.call(CollectiveOp::allreduce, 500);
    EXPECT_THROW(collectives.run(call, buffers.stream.get(), AlgorithmOverride::pairwise),
                 InvalidArgument);
    collectives.run(call, buffers.stream.get());
    POLYPATH_CHECK(driver(), stream_synchronize(buffers.stream.get()));
    other->check();
    comm.exchange({}, {});
  });
}

}  // namespace
}  // namespace polypath::test
