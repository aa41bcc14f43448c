// Rows that are summed over ranks and normalised, as programs ask for it, over ranks that are
// threads: by one kernel and by two, on several streams, among collectives, in graphs; and calls
// that are not right or not alike.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <chrono>

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>

#include "base/error.hpp"
#include "collectives/norm_call.hpp"
#include "driver/check.hpp"
#include "group.hpp"
#include "norm_rows.hpp"
#include "schedule_calls.hpp"

namespace polypath::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr CollectivesOptions kFewBlocks{.max_blocks = 16, .check = false};
const GroupOptions kLimited{.time_limit = std::chrono::seconds(30)};

int ranks() { return std::min(4, static_cast<int>(group_node().node.gpus.size())); }

std::vector<PlannedNorm> random_norms(Random& random, int count) {
  std::vector<PlannedNorm> row;
  for (int i = 0; i < count; ++i)
    row.push_back(
        planned(random, random_norm(random, static_cast<std::uint32_t>(ranks()), 2000, 20000, 1)));
  return row;
}

class Norms : public testing::Test {
 protected:
  void SetUp() override {
    NEEDS_GPUS(2);
    group_.emplace(ranks());
  }
  [[nodiscard]] static const CudaDriver& driver() { return *group_node().driver; }

  std::optional<Group> group_;
};

class NormsBy : public Norms, public testing::WithParamInterface<NormRoute> {};

TEST_P(NormsBy, RandomRows_LeaveEveryByteRight) {
  Random random(3);
  std::vector<std::vector<PlannedNorm>> norms;
  std::vector<std::vector<PlannedCall>> others;
  for (int turn = 0; turn < random_rows(6); ++turn) {
    norms.push_back(random_norms(random, 5));
    others.push_back({planned_call(random, ranks(), {0, 20000})});
  }
  group_->run([&](Communicator& comm) {
    Collectives collectives(comm, kFewBlocks);
    const Stream first(driver(), comm.context());
    const Stream second(driver(), comm.context());
    for (std::size_t turn = 0; turn < norms.size(); ++turn) {
      const NormRow row(driver(), norms[turn], comm.rank());
      const CallRow other(driver(), others[turn], comm.rank());
      row.issue(collectives, norms[turn], first.get(), GetParam());
      collectives.run(other.call(others[turn], 0), second.get());
      for (const Stream* const stream : {&first, &second})
        POLYPATH_CHECK(driver(), stream_synchronize(stream->get()));
      comm.check();
      row.expect_done(norms[turn]);
      other.expect_done(others[turn]);
    }
    const std::uint64_t all = norms.size() * norms.front().size();
    const CollectiveCounts& counts = collectives.counts();
    EXPECT_EQ(all, counts.norms_fused + counts.norms_apart);
    if (GetParam() != NormRoute::apart) {
      EXPECT_EQ(all, counts.norms_fused);  // all are short
    } else {
      EXPECT_EQ(all, counts.norms_apart);
    }
    comm.exchange({}, {});
  });
}

TEST_P(NormsBy, CapturedRow_ReplaysAmongOtherCalls) {
  if (driver().stream_begin_capture == nullptr) GTEST_SKIP() << "no capture";
  Random random(4);
  const std::vector<PlannedNorm> captured = random_norms(random, 4);
  const std::vector<PlannedNorm> eager = random_norms(random, 3);
  group_->run([&](Communicator& comm) {
    Collectives collectives(comm, kFewBlocks);
    const Stream stream(driver(), comm.context());
    const NormRow row(driver(), captured, comm.rank());
    const CapturedRow graph(driver(), stream.get(),
                            [&] { row.issue(collectives, captured, stream.get(), GetParam()); });
    for (int turn = 0; turn < 3; ++turn) {
      row.reset(captured);
      const NormRow between(driver(), eager, comm.rank());
      graph.launch(stream.get());
      between.issue(collectives, eager, stream.get());
      POLYPATH_CHECK(driver(), stream_synchronize(stream.get()));
      comm.check();
      row.expect_done(captured);
      between.expect_done(eager);
    }
    comm.exchange({}, {});
  });
}

std::string name_of(NormRoute route) {
  if (route == NormRoute::planned) return "planned";
  return route == NormRoute::fused ? "fused" : "apart";
}

INSTANTIATE_TEST_SUITE_P(Routes, NormsBy,
                         testing::Values(NormRoute::planned, NormRoute::fused, NormRoute::apart),
                         [](const auto& param_info) { return name_of(param_info.param); });

TEST_F(Norms, PlanFusesFewRows_AndNotMany) {
  group_->run([&](Communicator& comm) {
    const Collectives collectives(comm, kFewBlocks);
    const auto plan = [&](std::uint64_t rows) {
      return collectives.plan(NormCall{.rows = rows, .hidden = 5120, .epsilon = 1e-6F});
    };
    EXPECT_TRUE(plan(1).is_fused);
    EXPECT_TRUE(plan(8).is_fused);
    EXPECT_FALSE(plan(4096).is_fused);
    EXPECT_EQ(0, plan(4096).fused_us);
    for (const std::uint64_t rows : {1U, 8U, 64U, 100U}) {
      const NormPlan planned_norm = plan(rows);
      EXPECT_EQ(planned_norm.is_fused, planned_norm.fused_us < planned_norm.apart_us);
    }
    EXPECT_THROW((void)collectives.plan(NormCall{.rows = 4096, .hidden = 5120}, NormRoute::fused),
                 InvalidArgument);
    comm.exchange({}, {});
  });
}

TEST_F(Norms, SingleRank_NormalisesAlone) {
  Random random(5);
  NormCase what = random_norm(random, 1, 2000, 20000, 1);
  const std::vector<PlannedNorm> row{planned(random, what)};
  Group group(1);
  group.run([&](Communicator& comm) {
    Collectives collectives(comm, kFewBlocks);
    const Stream stream(driver(), comm.context());
    const NormRow memory(driver(), row, comm.rank());
    memory.issue(collectives, row, stream.get());
    POLYPATH_CHECK(driver(), stream_synchronize(stream.get()));
    memory.expect_done(row);
    EXPECT_EQ(1U, collectives.counts().norms_apart);
  });
}

TEST_F(Norms, WrongArguments_LeaveCommUsable) {
  Random random(6);
  const std::vector<PlannedNorm> row = random_norms(random, 1);
  group_->run([&](Communicator& comm) {
    Collectives collectives(comm, kFewBlocks);
    const Stream stream(driver(), comm.context());
    const NormRow memory(driver(), row, comm.rank());
    const NormCall right = memory.call(row, 0);
    const auto refused = [&](const char* words, auto change) {
      NormCall wrong = right;
      change(wrong);
      try {
        collectives.run(wrong, stream.get());
        ADD_FAILURE() << "not refused: " << words;
      } catch (const InvalidArgument& error) {
        EXPECT_THAT(error.what(), HasSubstr(words));
      }
    };
    refused("hidden 12 is not a multiple of 8", [](NormCall& call) { call.hidden = 12; });
    refused("hidden 49160 is not", [](NormCall& call) { call.hidden = 49160; });
    refused("rows of float32", [](NormCall& call) { call.type = DataType::float32; });
    refused("epsilon -1", [](NormCall& call) { call.epsilon = -1; });
    memory.issue(collectives, row, stream.get());
    POLYPATH_CHECK(driver(), stream_synchronize(stream.get()));
    comm.check();
    memory.expect_done(row);
    comm.exchange({}, {});
  });
}

TEST_F(Norms, WrongBuffer_IsNamedWithTheRank) {
  const CurrentContext current(driver(), (*group_)[0].context());
  const DeviceBytes device(driver(), 1 << 16);
  const CUdeviceptr at = device.address();
  const NormCall right{.rows = 2,
                       .hidden = 64,
                       .input = at,
                       .residual = at + 1024,
                       .residual_out = at + 2048,
                       .weight = at + 4096,
                       .output = at + 8192};
  EXPECT_NO_THROW(require_norm_buffers(driver(), right, {1, 4, 0}));
  const auto refused = [&](const char* words, auto change) {
    NormCall wrong = right;
    change(wrong);
    try {
      require_norm_buffers(driver(), wrong, {1, 4, 0});
      ADD_FAILURE() << "not refused: " << words;
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 1: "), HasSubstr(words)));
    }
  };
  refused("input is null", [](NormCall& call) { call.input = 0; });
  refused("residual_out is null", [](NormCall& call) { call.residual_out = 0; });
  refused("weight is not aligned to 16", [](NormCall& call) { call.weight += 8; });
  refused("residual is not aligned to 16", [](NormCall& call) { call.residual += 2; });
  refused("output has", [&](NormCall& call) { call.output = at + (1 << 16) - 64; });
  refused("input and residual_out overlap", [](NormCall& call) { call.residual_out = call.input; });
  refused("residual and residual_out overlap",
          [](NormCall& call) { call.residual_out = call.residual + 16; });
  refused("input and output overlap", [](NormCall& call) { call.output = call.input + 16; });
  refused("output and weight overlap", [](NormCall& call) { call.output = call.weight; });
  refused("input and output overlap", [](NormCall& call) {
    call.scale = call.weight + 1024;
    call.output = call.input;
  });
}

struct UnlikeNorm {
  const char* name;
  void (*change)(NormCall&);
};

TEST_F(Norms, CallsThatDiffer_EndOnAllRanks) {
  Random random(7);
  NormCase what;
  what.ranks = static_cast<std::uint32_t>(ranks());
  what.rows = 4;
  what.hidden = 64;
  const std::vector<PlannedNorm> row{planned(random, what)};
  const std::vector<UnlikeNorm> others{
      {"norm of 2 rows of 64 bfloat16", [](NormCall& call) { call.rows = 2; }},
      {"norm of 8 rows of 32 bfloat16",
       [](NormCall& call) {
         call.rows = 8;
         call.hidden = 32;
       }},
      {"norm of 4 rows of 64 float16", [](NormCall& call) { call.type = DataType::float16; }},
      {"64 bfloat16 to float8", [](NormCall& call) { call.scale = call.weight; }},
      {"in another way", [](NormCall& call) { call.epsilon = 1; }},
      {"in another way", [](NormCall& call) { call.residual = 0; }},
  };
  for (const UnlikeNorm& other : others)
    for (const NormRoute route : {NormRoute::fused, NormRoute::apart}) {
      SCOPED_TRACE(other.name);
      Group group(ranks(), kLimited);
      const auto failures = group.failures([&](Communicator& comm) {
        Collectives collectives(comm, kFewBlocks);
        const Stream stream(driver(), comm.context());
        const NormRow memory(driver(), row, comm.rank());
        NormCall call = memory.call(row, 0);
        if (comm.rank() == 1) other.change(call);
        collectives.run(call, stream.get(), route);
        POLYPATH_CHECK(driver(), stream_synchronize(stream.get()));
        while (!comm.aborted()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        comm.check();
      });
      const bool has_name = route == NormRoute::fused;
      EXPECT_THAT(failures, Each(HasSubstr(has_name ? other.name : "allreduce of")));
    }
}

TEST_F(Norms, NormAndAllreduceOfOneSize_EndOnAllRanks) {
  Random random(8);
  NormCase what;
  what.ranks = static_cast<std::uint32_t>(ranks());
  what.rows = 4;
  what.hidden = 64;
  const std::vector<PlannedNorm> row{planned(random, what)};
  Group group(ranks(), kLimited);
  const auto failures = group.failures([&](Communicator& comm) {
    Collectives collectives(comm, kFewBlocks);
    const Stream stream(driver(), comm.context());
    const NormRow memory(driver(), row, comm.rank());
    const NormCall call = memory.call(row, 0);
    CollectiveCall other = all_reduce_of(call);
    other.within = 0;
    if (comm.rank() == 0)
      collectives.run(other, stream.get());
    else
      collectives.run(call, stream.get());
    POLYPATH_CHECK(driver(), stream_synchronize(stream.get()));
    while (!comm.aborted()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    comm.check();
  });
  EXPECT_THAT(failures, Each(AllOf(HasSubstr("allreduce and norm of 4 rows of 64 bfloat16"),
                                   HasSubstr("allreduce of 256 bfloat16 by sum"))));
}

TEST_F(Norms, CheckedUnlikeCalls_LeaveCommUsable) {
  Random random(9);
  const std::vector<PlannedNorm> row = random_norms(random, 1);
  group_->run([&](Communicator& comm) {
    Collectives collectives(comm, {.max_blocks = 16, .check = true});
    const Stream stream(driver(), comm.context());
    const NormRow memory(driver(), row, comm.rank());
    NormCall wrong = memory.call(row, 0);
    if (comm.rank() == 1) wrong.epsilon = 7;
    EXPECT_THROW(collectives.run(wrong, stream.get()), InvalidArgument);
    memory.issue(collectives, row, stream.get());
    POLYPATH_CHECK(driver(), stream_synchronize(stream.get()));
    comm.check();
    memory.expect_done(row);
    comm.exchange({}, {});
  });
}

}  // namespace
}  // namespace polypath::test
