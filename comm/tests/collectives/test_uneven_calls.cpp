// Reduce-scatters and all-gathers whose ranks have parts of different lengths, as programs call them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <numeric>
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

int uneven_ranks() { return gpus_up_to(4); }
constexpr CollectivesOptions kSmallScratch{
    .max_blocks = 16, .check = false, .direct_results = true};

class UnevenCalls : public testing::Test {
 protected:
  void SetUp() override {
    NEEDS_GPUS(2);
    group_.emplace(uneven_ranks());
  }
  [[nodiscard]] static const CudaDriver& driver() { return *group_node().driver; }

  std::optional<Group> group_;
};

PlannedCall uneven_call(Random& random, const ByteRange& bytes, SumOrder order = SumOrder::rank) {
  PlannedCall call;
  do {
    call = planned_call(random, uneven_ranks(), bytes);
  } while (call.what.op != CollectiveOp::all_gather &&
           call.what.op != CollectiveOp::reduce_scatter);
  if (call.what.placement == Placement::in_place) call.what.placement = Placement::own_part;
  call.what.order = order;
  make_uneven(random, call.what);
  call.images = images_of(random, call.what);
  return call;
}

TEST_F(UnevenCalls, RandomPartsAmongOtherCalls) {
  for (const SumOrder order : {SumOrder::rank, SumOrder::tree}) {
    Random random(20261127 + static_cast<unsigned>(order));
    std::vector<PlannedCall> row;
    for (int i = 0; i < 12; ++i) {
      PlannedCall& call = row.emplace_back(
          i % 4 == 3
              ? planned_call(random, uneven_ranks(), {0, 20000})
              : uneven_call(random, i == 0 ? ByteRange{3 << 20, 5 << 20} : ByteRange{0, 20000},
                            order));
      call.what.order = order;
      call.images = images_of(random, call.what);
    }
    group_->run([&](Communicator& comm) {
      CollectivesOptions options = kSmallScratch;
      options.order = order;
      Collectives collectives(comm, options);
      const std::array streams{Stream(driver(), comm.context()), Stream(driver(), comm.context())};
      const CallRow rank_row(driver(), row, comm.rank());
      for (std::size_t i = 0; i < row.size(); ++i)
        collectives.run(rank_row.call(row, i), streams[i % 2].get());
      for (const Stream& stream : streams)
        POLYPATH_CHECK(driver(), stream_synchronize(stream.get()));
      comm.check();
      rank_row.expect_done(row);
      const auto uneven = std::ranges::count_if(row, [](const PlannedCall& call) {
        return !call.what.parts.empty() && call.what.count > 0;
      });
      EXPECT_EQ(collectives.counts().uneven, static_cast<std::uint64_t>(uneven));
      EXPECT_EQ(collectives.counts().cells + collectives.counts().channels, calls_of(row));
      comm.exchange({}, {});
    });
  }
}

TEST_F(UnevenCalls, FirstInCapture_IsRefused) {
  if (driver().stream_begin_capture == nullptr) GTEST_SKIP() << "no capture";
  Random random(3);
  std::vector<PlannedCall> row{uneven_call(random, {4000, 20000})};
  row.front().what.placement = Placement::apart;
  row.front().images = images_of(random, row.front().what);
  group_->run([&](Communicator& comm) {
    Collectives collectives(comm, kSmallScratch);
    const Stream stream(driver(), comm.context());
    const CallRow rank_row(driver(), row, comm.rank());
    const CollectiveCall call = rank_row.call(row, 0);
    {
      const CapturedRow none(driver(), stream.get(), [&] {
        try {
          collectives.run(call, stream.get());
          ADD_FAILURE() << "not refused";
        } catch (const InvalidArgument& error) {
          EXPECT_THAT(error.what(), HasSubstr("make one before"));
        }
      });
    }
    CollectiveCall nothing = call;
    nothing.count = 0;
    nothing.parts = UnevenParts{};
    collectives.run(nothing, stream.get());
    const CapturedRow graph(driver(), stream.get(), [&] { collectives.run(call, stream.get()); });
    for (int turn = 0; turn < 3; ++turn) {
      rank_row.reset(row);
      graph.launch(stream.get());
      POLYPATH_CHECK(driver(), stream_synchronize(stream.get()));
      rank_row.expect_done(row);
    }
    comm.exchange({}, {});
  });
}

TEST_F(UnevenCalls, SingleRankIsCopied) {
  Random random(9);
  CollectiveCase what;
  what.op = CollectiveOp::all_gather;
  what.ranks = 1;
  what.count = 1000;
  what.parts = {1000};
  std::vector<PlannedCall> row{{what, images_of(random, what)}};
  Group alone(1);
  alone.run([&](Communicator& comm) {
    Collectives collectives(comm, kSmallScratch);
    const Stream stream(driver(), comm.context());
    const CallRow rank_row(driver(), row, 0);
    collectives.run(rank_row.call(row, 0), stream.get());
    POLYPATH_CHECK(driver(), stream_synchronize(stream.get()));
    rank_row.expect_done(row);
    EXPECT_EQ(collectives.counts().copies, 1u);
  });
}

/// One part for each rank.
UnevenParts some_parts() {
  UnevenParts parts{};
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(uneven_ranks()); ++rank)
    parts[rank] = 10 * (rank + 1);
  return parts;
}

UnevenParts exchanged_parts() {
  UnevenParts parts = some_parts();
  std::swap(parts[0], parts[1]);
  return parts;
}

/// A gather of these parts, of which rank 1 has others.
std::vector<std::string> failures_of(Group& group, bool check, UnevenParts parts,
                                     UnevenParts of_rank_1) {
  return group.failures([&](Communicator& comm) {
    CollectivesOptions options = kSmallScratch;
    options.check = check;
    Collectives collectives(comm, options);
    const Stream stream(comm.driver(), comm.context());
    const DeviceBytes memory(comm.driver(), 1 << 20);
    CollectiveCall call{.op = CollectiveOp::all_gather,
                        .send = memory.address(),
                        .recv = memory.address() + (1 << 19)};
    call.parts = comm.rank() == 1 ? of_rank_1 : parts;
    call.count = *std::ranges::max_element(*call.parts);
    collectives.run(call, stream.get());
    POLYPATH_CHECK(comm.driver(), stream_synchronize(stream.get()));
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(40);
    while (!comm.aborted() && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    comm.check();
  });
}

TEST_F(UnevenCalls, PartsThatDiffer_EndOnAllRanks) {
  Group by_total(uneven_ranks(), {.time_limit = std::chrono::seconds(30)});
  UnevenParts longer = some_parts();
  ++longer[static_cast<std::size_t>(uneven_ranks()) - 1];
  const auto text_of = [](const UnevenParts& parts) {
    return fmt::format("all_gatherv of {} float32",
                       std::accumulate(parts.begin(), parts.end(), std::uint64_t{0}));
  };
  EXPECT_THAT(failures_of(by_total, false, some_parts(), longer),
              Each(AllOf(HasSubstr(text_of(some_parts())), HasSubstr(text_of(longer)))));
  Group by_lengths(uneven_ranks(), {.time_limit = std::chrono::seconds(30)});
  EXPECT_THAT(failures_of(by_lengths, false, some_parts(), exchanged_parts()),
              Each(HasSubstr("the lengths of parts")));
}

TEST_F(UnevenCalls, CheckOption_NamesThePart) {
  EXPECT_THAT(failures_of(*group_, true, some_parts(), exchanged_parts()),
              Each(HasSubstr("the part 0 of rank 1 (20) is not that of rank 0 (10)")));
}

/// A driver that cannot load modules while this is set.
std::atomic<bool> is_out_of_memory = false;

/// Their kernels come late, when programs have taken most of the memory.
TEST_F(UnevenCalls, KernelsNotLoaded_AreLoadedByTheNextCall) {
  const auto short_driver = std::make_shared<CudaDriver>(driver());
  static decltype(short_driver->module_load_data) load = nullptr;
  load = driver().module_load_data;
  short_driver->module_load_data = [](CUmodule* module, const void* image) -> CUresult {
    return is_out_of_memory ? CUDA_ERROR_OUT_OF_MEMORY : load(module, image);
  };
  Random random(4);
  const std::vector<PlannedCall> row{uneven_call(random, {1000, 20000}),
                                     planned_call(random, uneven_ranks(), {1000, 20000})};
  Group group(uneven_ranks(), {.driver = short_driver});
  group.run([&](Communicator& comm) {
    Collectives collectives(comm, kSmallScratch);
    const Stream stream(driver(), comm.context());
    const CallRow rank_row(driver(), row, comm.rank());
    is_out_of_memory = true;
    try {
      collectives.run(rank_row.call(row, 0), stream.get());
      ADD_FAILURE() << "not refused";
    } catch (const NotSupported& error) {
      EXPECT_THAT(error.what(), HasSubstr("rank 0: kernels of uneven parts: "));
    }
    comm.exchange({}, {});
    is_out_of_memory = false;
    comm.exchange({}, {});
    for (const std::size_t i : {1, 0}) collectives.run(rank_row.call(row, i), stream.get());
    POLYPATH_CHECK(driver(), stream_synchronize(stream.get()));
    comm.check();
    rank_row.expect_done(row);
    comm.exchange({}, {});
  });
}

TEST_F(UnevenCalls, WrongBufferIsRefused) {
  const CurrentContext current(driver(), (*group_)[0].context());
  const DeviceBytes device(driver(), 4096);
  const CUdeviceptr ours = device.address();
  CollectiveCall call{.op = CollectiveOp::reduce_scatter, .count = 500};
  call.parts = UnevenParts{0, 100, 500, 300};
  const auto why = [&](CUdeviceptr send, CUdeviceptr recv, int rank) -> std::string {
    call.send = send;
    call.recv = recv;
    try {
      require_buffers(driver(), call, {rank, 4, 0});
      return {};
    } catch (const InvalidArgument& error) {
      return error.what();
    }
  };
  EXPECT_EQ(why(ours, 0, 0), "");  // it receives nothing
  EXPECT_THAT(why(ours, 0, 1), HasSubstr("recv is null"));
  EXPECT_EQ(why(ours, ours + 400, 2), "");
  EXPECT_THAT(why(ours, ours + 404, 2), HasSubstr("send and recv overlap"));
  EXPECT_THAT(why(ours + 1024, ours, 2), HasSubstr("send has 3072 bytes to its end, and 3600"));
  call.op = CollectiveOp::all_gather;
  EXPECT_EQ(why(0, ours, 0), "");
  EXPECT_EQ(why(ours + 400, ours, 2), "");
  EXPECT_THAT(why(ours, ours, 2), HasSubstr("send and recv overlap"));
}

}  // namespace
}  // namespace polypath::test
