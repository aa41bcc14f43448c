// Collectives that follow what was tuned, on a simulated node in virtual time: what the model gets
// wrong is mended, and ranks that know different things agree.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/units.hpp"
#include "call_rows.hpp"
#include "collectives/plan/collective_json.hpp"
#include "collectives/plan/tuned_plan.hpp"
#include "driver/check.hpp"
#include "group.hpp"
#include "lab/collective_tuning.hpp"

namespace polypath::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

constexpr int kRanks = 2;
constexpr std::uint64_t kBytes = 64 * kKiB;

/// What the node's links really carry is 50 GB/s: by a rank's word of 1 GB/s cells, which carry
/// flags next to the data, look slower than flat kernels.
void slow_links(Node& node) {
  for (Link& link : node.links) link.gbps = 1;
}

TunedCollective entry(const std::string& op, CollectiveVariant way) {
  return {.op = op,
          .ranks = "2 ranks, nvlink x2",
          .bytes = kBytes,
          .way = std::move(way),
          .planned_us = 30,
          .us = 20,
          .tried = 9};
}

CollectiveCall call_of(CollectiveOp op, std::uint64_t bytes) {
  CollectiveCall call;
  call.op = op;
  call.count = request_of_bytes(op, DataType::float32, bytes, kRanks).count;
  return call;
}

/// Runs random calls and compares every byte.
void run_calls(Collectives& collectives, unsigned seed) {
  Communicator& comm = collectives.communicator();
  Random random(seed);
  std::vector<PlannedCall> row;
  for (int i = 0; i < 6; ++i) row.push_back(planned_call(random, kRanks, {0, 100'000}));
  const CallRow rank_row(comm.driver(), row, comm.rank());
  const Stream stream(comm.driver(), comm.context());
  for (std::size_t i = 0; i < row.size(); ++i) collectives.run(rank_row.call(row, i), stream.get());
  POLYPATH_CHECK(comm.driver(), stream_synchronize(stream.get()));
  comm.check();
  rank_row.expect_done(row);
}

TEST(TunedCollectives, WrongModel_IsCorrectedByTuning) {
  Group group(kRanks, {.alter_node = [](int, Node& node) { slow_links(node); }});
  std::array<std::vector<TunedCollective>, kRanks> known;
  Context context(group_node(), {{"profile", "off"}, {"registry", "off"}});
  std::vector<std::string> asked;
  group.run([&](Communicator& comm) {
    Collectives collectives(comm, {.max_blocks = 32});
    const CollectiveCall call = call_of(CollectiveOp::allreduce, kBytes);
    EXPECT_EQ(collectives.plan(call).algorithm, Algorithm::flat);
    EXPECT_FALSE(collectives.plan(call).tuned);
    CollectiveBench bench(collectives, {}, group_node());
    TuningProgress progress;
    if (comm.rank() == 0)
      progress = [&](std::size_t, std::size_t, double, const std::string& what) {
        asked.push_back(what);
        return true;
      };
    CollectiveTuning tuning(bench, context,
                            {.ops = {CollectiveOp::allreduce}, .sizes = {kBytes}, .budget_s = 1e6},
                            progress);
    EXPECT_FALSE(tuning.run().stopped);

    const CollectivePlan& plan = collectives.plan(call);
    EXPECT_EQ(plan.algorithm, Algorithm::cells);
    EXPECT_THAT(plan.reason, AllOf(HasSubstr("tuned: "), HasSubstr("by flat, ")));
    known.at(static_cast<std::size_t>(comm.rank())) = collectives.basis().tuned;
    run_calls(collectives, 5);

    // Nothing is left to search.
    CollectiveTuning again(bench, context,
                           {.ops = {CollectiveOp::allreduce}, .sizes = {kBytes}, .budget_s = 1e6},
                           [](std::size_t, std::size_t total, double, const std::string&) {
                             EXPECT_EQ(total, 0u);
                             return true;
                           });
    EXPECT_FALSE(again.run().stopped);
    comm.exchange({}, {});
  });
  EXPECT_EQ(known[0], known[1]);
  ASSERT_EQ(context.source().tables.table<TunedCollective>().entries().size(), 1u);
  const TunedCollective& tuned = context.source().tables.table<TunedCollective>().entries().front();
  EXPECT_EQ(tuned, known[0].front());
  EXPECT_EQ(tuned.way.algorithm, "cells");
  EXPECT_EQ(tuned.ranks, "2 ranks, nvlink x2");
  EXPECT_GT(tuned.us, 0);
  EXPECT_LT(tuned.us * 1.01, tuned.planned_us);
  EXPECT_GT(tuned.tried, 5);
  EXPECT_EQ(asked.back(), "done");

  // A communicator that is made now follows it from the beginning.
  group.run([&](Communicator& comm) {
    Collectives collectives(
        comm,
        {.max_blocks = 32, .tuned = context.source().tables.table<TunedCollective>().entries()});
    const CollectiveCall call = call_of(CollectiveOp::allreduce, kBytes);
    EXPECT_EQ(variant_of(collectives.plan(call)), tuned.way);
    comm.exchange({}, {});
  });
}

TEST(TunedCollectives, RightModel_KeepsItsVariant) {
  Group group(kRanks);
  Context context(group_node(), {{"profile", "off"}, {"registry", "off"}});
  group.run([&](Communicator& comm) {
    Collectives collectives(comm, {.max_blocks = 32});
    const CollectiveCall call = call_of(CollectiveOp::allreduce, kBytes);
    const CollectiveVariant planned = variant_of(collectives.plan(call));
    CollectiveBench bench(collectives, {}, group_node());
    CollectiveTuning(bench, context,
                     {.ops = {CollectiveOp::allreduce}, .sizes = {kBytes}, .budget_s = 1e6}, {})
        .run();
    EXPECT_EQ(variant_of(collectives.plan(call)), planned);
    EXPECT_TRUE(collectives.plan(call).tuned);
    comm.exchange({}, {});
  });
  const TunedCollective& tuned = context.source().tables.table<TunedCollective>().entries().at(0);
  EXPECT_EQ(tuned.us, tuned.planned_us);
}

TEST(TunedCollectives, StopByRankZero_StopsAllAndSavesNothing) {
  Group group(kRanks);
  Context context(group_node(), {{"profile", "off"}, {"registry", "off"}});
  group.run([&](Communicator& comm) {
    Collectives collectives(comm, {.max_blocks = 8});
    CollectiveBench bench(collectives, {}, group_node());
    int reports = 0;
    const TuningProgress third = [&](std::size_t, std::size_t, double, const std::string&) {
      return comm.rank() != 0 || ++reports < 3;
    };
    CollectiveTuning tuning(bench, context,
                            {.ops = {CollectiveOp::allreduce}, .sizes = {kBytes}, .budget_s = 1e6},
                            third);
    EXPECT_TRUE(tuning.run().stopped);
    EXPECT_TRUE(collectives.basis().tuned.empty());
    run_calls(collectives, 6);
    comm.exchange({}, {});
  });
  EXPECT_TRUE(context.source().tables.table<TunedCollective>().entries().empty());
}

/// A driver that writes down what watched threads do with memory and streams, and calls `launched`
/// after each kernel that it launched. One at a time: entry points are plain functions.
class WatchedDriver {
 public:
  explicit WatchedDriver(const CudaDriver& driver) : table_(std::make_shared<CudaDriver>(driver)) {
    real = driver;
    log.clear();
    table_->launch_kernel_ex = nullptr;
    table_->launch_kernel = [](CUfunction function, unsigned x, unsigned y, unsigned z, unsigned bx,
                               unsigned by, unsigned bz, unsigned shared, CUstream stream,
                               void** arguments, void** extra) {
      const CUresult result =
          real.launch_kernel(function, x, y, z, bx, by, bz, shared, stream, arguments, extra);
      note("launch");
      if (is_watched && launched) launched();
      return result;
    };
    table_->stream_synchronize = [](CUstream stream) {
      note("synchronize");
      return real.stream_synchronize(stream);
    };
    table_->mem_free = [](CUdeviceptr address) {
      note("free");
      return real.mem_free(address);
    };
  }
  ~WatchedDriver() { launched = nullptr; }
  WatchedDriver(const WatchedDriver&) = delete;
  WatchedDriver& operator=(const WatchedDriver&) = delete;

  [[nodiscard]] std::shared_ptr<const CudaDriver> driver() const { return table_; }

  static inline thread_local bool is_watched = false;
  static inline std::function<void()> launched;
  static inline std::vector<std::string> log;

 private:
  static void note(const char* what) {
    if (is_watched) log.emplace_back(what);
  }
  static inline CudaDriver real;
  std::shared_ptr<CudaDriver> table_;
};

TEST(TunedCollectives, ThrowingCall_FreesBuffersAfterKernels) {
  const WatchedDriver watched(*group_node().driver);
  Group group(kRanks, {.driver = watched.driver()});
  const auto failures = group.failures([&](Communicator& comm) {
    Collectives collectives(comm, {.max_blocks = 8});
    CollectiveBench bench(collectives, {}, group_node());
    if (comm.rank() == 0) {
      WatchedDriver::launched = [&comm] { comm.abort("stopped by the test"); };
      WatchedDriver::is_watched = true;
    }
    try {
      bench.run({.op = CollectiveOp::allreduce, .bytes = kBytes});
    } catch (const Error&) {
      EXPECT_EQ(comm.driver().stream_synchronize(nullptr), CUDA_SUCCESS);
      throw;
    }
  });
  EXPECT_THAT(failures, Each(HasSubstr("stopped by the test")));
  const auto& log = WatchedDriver::log;
  const auto launch = std::ranges::find(log, "launch");
  ASSERT_EQ(std::ranges::count(log, "launch"), 1);
  const auto free = std::find(launch, log.end(), "free");
  ASSERT_NE(free, log.end());
  EXPECT_EQ(std::count(launch, free, "synchronize"), 1) << testing::PrintToString(log);
}

TEST(TunedCollectives, RanksWithOtherProfilesAgree) {
  // Each knows other capacities, and other ways that were tuned.
  const std::array tables{
      std::vector{entry("allreduce", {.algorithm = "flat", .stages = 2, .blocks = 5}),
                  entry("broadcast", {.algorithm = "flat", .stages = 1, .blocks = 7})},
      std::vector{entry("allreduce", {.algorithm = "cells", .stages = 1, .blocks = 3}),
                  entry("all_gather", {.algorithm = "flat", .stages = 1, .blocks = 2})}};
  for (const int slow : {0, 1}) {
    SCOPED_TRACE(slow);
    Group group(kRanks,
                {.time_limit = std::chrono::minutes(1), .alter_node = [slow](int rank, Node& node) {
                   if (rank == slow) slow_links(node);
                 }});
    std::array<std::string, kRanks> plans;
    group.run([&](Communicator& comm) {
      const auto rank = static_cast<std::size_t>(comm.rank());
      Collectives collectives(comm, {.max_blocks = 16, .tuned = tables.at(rank)});
      for (const CollectiveOp op :
           {CollectiveOp::allreduce, CollectiveOp::reduce_scatter, CollectiveOp::all_gather,
            CollectiveOp::broadcast, CollectiveOp::reduce, CollectiveOp::all_to_all})
        for (const std::uint64_t bytes : {4 * kKiB, kBytes, kMiB})
          plans.at(rank) += to_json(collectives.plan(call_of(op, bytes))).dump() + "\n";
      const CollectivePlan& plan = collectives.plan(call_of(CollectiveOp::allreduce, kBytes));
      CollectiveVariant followed = variant_of(plan);
      followed.tile_bytes = 0;  // the entry leaves both to the plan
      followed.lag = 0;
      EXPECT_EQ(followed, tables[0].front().way);
      EXPECT_EQ(collectives.basis().node.links.front().gbps, slow == 0 ? 1 : 50);
      run_calls(collectives, 7);
      comm.exchange({}, {});
    });
    EXPECT_EQ(plans[0], plans[1]);
  }
}

TEST(TunedCollectives, GpusAsRankZeroNumbersThem) {
  // Ranks the other way round: what is tuned is of a class, and GPUs are those of the ranks.
  Group group(kRanks, {.gpus = {1, 0}});
  group.run([&](Communicator& comm) {
    Collectives collectives(comm, {.max_blocks = 16});
    EXPECT_EQ(collectives.basis().gpus, (std::vector{1, 0}));
    run_calls(collectives, 8);
    comm.exchange({}, {});
  });
}

}  // namespace
}  // namespace polypath::test
