// Collectives by lines as programs call them, where the simulated node keeps lines whole: rows of
// random calls, captures, paths whose lines come torn, and driver calls that fail while the paths
// are tried and memory is taken.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

#include "base/error.hpp"
#include "base/log.hpp"
#include "call_rows.hpp"
#include "collectives/collectives.hpp"
#include "driver/check.hpp"
#include "driver/fault_injection.hpp"
#include "group.hpp"
#include "schedule_calls.hpp"

namespace polypath::test {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr CollectivesOptions kFewBlocks{.max_blocks = 8, .check = false};

bool has_whole_lines() {
  const char* const lines = std::getenv("POLYPATH_SIM_LINES");
  return lines != nullptr && std::string_view(lines) == "whole";
}

class Lines : public testing::Test {
 protected:
  void SetUp() override {
    if (!group_node().simulated) GTEST_SKIP() << "what is simulated decides";
  }
  [[nodiscard]] static const CudaDriver& driver() { return *group_node().driver; }
};

TEST_F(Lines, RandomCallsOfEveryOp_AreExact) {
  if (!has_whole_lines()) GTEST_SKIP() << "lines come torn";
  for (const int ranks : {2, 3, 4}) {
    SCOPED_TRACE(ranks);
    Random random(static_cast<std::uint64_t>(ranks));
    std::vector<PlannedCall> row;
    for (int i = 0; i < random_rows(12); ++i)
      row.push_back(planned_call(random, ranks, {0, 20'000}));
    Group group(ranks);
    group.run([&](Communicator& comm) {
      Collectives collectives(comm, kFewBlocks);
      const Stream stream(driver(), comm.context());
      const CallRow rank_row(driver(), row, comm.rank());
      std::uint64_t calls = 0;
      for (std::size_t i = 0; i < row.size(); ++i) {
        // Others between them: halves and counts are their own.
        const auto choice = i % 3 == 2 ? AlgorithmOverride::planned : AlgorithmOverride::lines;
        collectives.run(rank_row.call(row, i), stream.get(), choice);
        calls += row[i].what.count > 0 && choice == AlgorithmOverride::lines ? 1 : 0;
      }
      POLYPATH_CHECK(driver(), stream_synchronize(stream.get()));
      comm.check();
      rank_row.expect_done(row);
      EXPECT_GE(collectives.counts().lines, calls);  // plans choose them as well
      comm.exchange({}, {});
    });
  }
}

TEST_F(Lines, CapturedCalls_ReplayAmongOthers) {
  if (!has_whole_lines()) GTEST_SKIP() << "lines come torn";
  Random random(5);
  std::vector<PlannedCall> row;
  for (int i = 0; i < 3; ++i) {
    row.push_back(planned_call(random, 2, {1000, 20'000}));
    row.back().what.placement = Placement::apart;
    row.back().images = images_of(random, row.back().what);
  }
  Group group(2);
  group.run([&](Communicator& comm) {
    Collectives collectives(comm, kFewBlocks);
    const Stream stream(driver(), comm.context());
    const CallRow captured(driver(), row, comm.rank());
    const CallRow between(driver(), row, comm.rank());
    const auto issue = [&](const CallRow& calls) {
      for (std::size_t i = 0; i < row.size(); ++i)
        collectives.run(calls.call(row, i), stream.get(), AlgorithmOverride::lines);
    };
    CapturedRow graph(driver(), stream.get(), [&] { issue(captured); });
    for (int launch = 0; launch < 3; ++launch) {
      captured.reset(row);
      between.reset(row);
      graph.launch(stream.get());
      issue(between);
      POLYPATH_CHECK(driver(), stream_synchronize(stream.get()));
      captured.expect_done(row);
      between.expect_done(row);
    }
    comm.exchange({}, {});
  });
}

TEST_F(Lines, ComeTorn_PlansDoWithoutThem) {
  if (has_whole_lines()) GTEST_SKIP() << "lines come whole";
  Random random(6);
  const std::vector<PlannedCall> row{planned_call(random, 2, {300'000, 320'000})};
  Group group(2);
  group.run([&](Communicator& comm) {
    Collectives collectives(comm, kFewBlocks);
    const Stream stream(driver(), comm.context());
    const CallRow rank_row(driver(), row, comm.rank());
    try {
      collectives.run(rank_row.call(row, 0), stream.get(), AlgorithmOverride::lines);
      ADD_FAILURE() << "it went by lines";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr("lines do not come whole"));
    }
    collectives.run(rank_row.call(row, 0), stream.get());
    POLYPATH_CHECK(driver(), stream_synchronize(stream.get()));
    rank_row.expect_done(row);
    EXPECT_EQ(collectives.counts().lines, 0U);
    EXPECT_EQ(collectives.counts().cells, 1U);
    comm.exchange({}, {});
  });
}

/// What a communicator with these faults did, on one rank.
struct Outcome {
  bool is_made = false;
  std::uint64_t lines = 0;  ///< calls
};

/// Each call of one function fails in turn, on any rank: all ranks have lines, none has, or none
/// has collectives (other memory was missing); what has them is exact.
TEST_F(Lines, FailedPreparation_LeavesThemOut) {
  if (!has_whole_lines()) GTEST_SKIP() << "lines come torn";
  set_log_level(LogLevel::off);
  Random random(9);
  const std::vector<PlannedCall> row{planned_call(random, 2, {300'000, 301'000})};
  // Paths are known by drivers: one at the address of another that is gone would know them already.
  std::vector<std::shared_ptr<const CudaDriver>> drivers;
  int groups_without = 0;
  int groups_by_lines = 0;
  for (const char* const call : {"cuMemAlloc_v2", "cuStreamCreate", "cuLaunchKernel"})
    for (std::uint64_t n = 1; n <= 6; ++n) {
      SCOPED_TRACE(std::string(call) + " " + std::to_string(n));
      FaultInjector injector(group_node().driver);
      drivers.push_back(injector.driver());
      Group group(2, {.driver = injector.driver()});
      std::vector<Outcome> outcomes(2);
      injector.fail(call, n, CUDA_ERROR_OUT_OF_MEMORY);
      group.run([&](Communicator& comm) {
        Outcome& outcome = outcomes[static_cast<std::size_t>(comm.rank())];
        std::unique_ptr<Collectives> collectives;
        try {
          collectives = std::make_unique<Collectives>(comm, kFewBlocks);
        } catch (const Error&) {
        }
        comm.exchange({}, {});
        injector.clear();
        comm.exchange({}, {});
        if (collectives == nullptr) return;
        outcome.is_made = true;
        const Stream stream(comm.driver(), comm.context());
        const CallRow rank_row(driver(), row, comm.rank());
        collectives->run(rank_row.call(row, 0), stream.get());
        POLYPATH_CHECK(driver(), stream_synchronize(stream.get()));
        rank_row.expect_done(row);
        outcome.lines = collectives->counts().lines;
        comm.exchange({}, {});
      });
      EXPECT_EQ(outcomes[0].is_made, outcomes[1].is_made);
      EXPECT_EQ(outcomes[0].lines, outcomes[1].lines);
      groups_without += outcomes[0].is_made && outcomes[0].lines == 0 ? 1 : 0;
      groups_by_lines += outcomes[0].lines > 0 ? 1 : 0;
    }
  set_log_level(LogLevel::warn);
  EXPECT_GE(groups_without, 8);
  EXPECT_GE(groups_by_lines, 2) << "where the call that would fail is not made";
}

}  // namespace
}  // namespace polypath::test
