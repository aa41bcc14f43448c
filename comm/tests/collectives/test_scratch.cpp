// Scratch of collectives that ranks take when a call needs it first: how much, and when; rows of calls
// from skewed starts, in graphs, and of ranks that one thread drives, while they change to it; memory
// that is missing. Every byte is compared.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "base/error.hpp"
#include "base/units.hpp"
#include "call_rows.hpp"
#include "collectives/collectives.hpp"
#include "driver/check.hpp"
#include "driver/context_guard.hpp"
#include "group.hpp"
#include "norm_rows.hpp"
#include "planting.hpp"
#include "schedule_calls.hpp"

namespace polypath::test {
namespace {

using testing::Each;

constexpr CollectivesOptions kDeferred{.max_blocks = 12, .defers_scratch = true};
/// Until a change that must come, after all ranks are ready.
constexpr int kCallsToChange = 4;

/// Bytes of one allocation that only scratch takes later.
constexpr std::uint64_t kMuch = 8 * kMiB;
/// Where ranks wait for what never comes.
constexpr std::chrono::seconds kFaultLimit{3};

std::chrono::milliseconds limit_of(DeferredFault fault) {
  return fault == DeferredFault::none ? std::chrono::minutes(5) : kFaultLimit;
}

const CudaDriver& driver() { return *group_node().driver; }

/// `value` of all ranks.
std::vector<std::uint64_t> gathered(Communicator& comm, std::uint64_t value) {
  std::vector<std::uint64_t> all(static_cast<std::size_t>(comm.size()));
  comm.exchange(std::as_bytes(std::span(&value, 1)), std::as_writable_bytes(std::span(all)));
  return all;
}

/// By channels or lines, and by cells of the scratch that is taken first.
PlannedCall large_call(Random& random, int ranks) {
  while (true) {
    PlannedCall call = planned_call(random, ranks, {500'000, 600'000});
    if (call.what.count > 0) return call;
  }
}
PlannedCall small_call(Random& random, int ranks) { return planned_call(random, ranks, {1, 2000}); }

std::vector<PlannedCall> large_row(int ranks, int calls) {
  Random random(20261128);
  std::vector<PlannedCall> row;
  for (int i = 0; i < calls; ++i) row.push_back(large_call(random, ranks));
  return row;
}

/// One call, which is soon done.
std::vector<PlannedCall> quick_row(int ranks) {
  Random random(3);
  while (true) {
    std::vector<PlannedCall> row{planned_call(random, ranks, {850'000, 900'000})};
    if (row.front().what.op == CollectiveOp::broadcast) return row;
  }
}

/// One rank's calls of a row, again and again on one stream.
class RankCalls {
 public:
  RankCalls(Communicator& comm, Collectives& collectives, const std::vector<PlannedCall>& row)
      : comm_(comm),
        collectives_(collectives),
        row_(row),
        memory_(driver(), row, comm.rank()),
        stream_(driver(), comm.context()) {}

  [[nodiscard]] CUstream stream() const { return stream_.get(); }
  void issue(std::size_t i, AlgorithmOverride choice = AlgorithmOverride::planned) {
    collectives_.run(memory_.call(row_, i), stream_.get(), choice);
  }
  void reset() { memory_.reset(row_); }
  void finish() {
    POLYPATH_CHECK(driver(), stream_synchronize(stream_.get()));
    comm_.check();
    memory_.expect_done(row_);
  }
  void run(AlgorithmOverride choice = AlgorithmOverride::planned) {
    reset();
    for (std::size_t i = 0; i < row_.size(); ++i) issue(i, choice);
    finish();
  }

 private:
  Communicator& comm_;
  Collectives& collectives_;
  const std::vector<PlannedCall>& row_;
  CallRow memory_;
  Stream stream_;
};

/// Makes large calls until all scratch is in use, and then `calls`: each rank has asked for scratch.
void run_until_changed(Communicator& comm, Collectives& collectives, RankCalls& calls) {
  const std::vector<PlannedCall> row = quick_row(comm.size());
  RankCalls large(comm, collectives, row);
  collectives.wait_scratch();
  comm.exchange({}, {});
  for (int i = 0; i < kCallsToChange; ++i) {
    large.run();
    comm.exchange({}, {});
  }
  const std::uint64_t before = collectives.counts().by_first_scratch;
  calls.run();
  EXPECT_EQ(before, collectives.counts().by_first_scratch) << "did not change";
}

class Scratch : public testing::Test {
 protected:
  void SetUp() override { NEEDS_GPUS(2); }
};

struct SizeCase {
  const char* name;
  int ranks;
  int reserved_sms;
  int max_blocks;
  // By default, on the simulated nodes:
  std::uint32_t channels;
  std::uint32_t later_slot_bytes;  ///< of a communicator that is not its GPU's first one
};

class ScratchSizes : public testing::TestWithParam<SizeCase> {};

TEST_P(ScratchSizes, FirstAndLater_AreWithinLimits) {
  const SizeCase& param = GetParam();
  NEEDS_GPUS(param.ranks);
  const std::uint64_t limit = param.ranks <= 4 ? 64 * kMiB : 128 * kMiB;
  const std::uint64_t first_limit = param.ranks <= 4 ? 4 * kMiB : 8 * kMiB;
  const std::vector<PlannedCall> large = quick_row(param.ranks);
  Random random(1);
  const std::vector<PlannedCall> small{small_call(random, param.ranks)};
  Group first_group(param.ranks);
  Group later_group(param.ranks);
  std::vector<std::unique_ptr<Collectives>> kept(static_cast<std::size_t>(param.ranks));
  for (Group* const group : {&first_group, &later_group})
    group->run([&](Communicator& comm) {
      CollectivesOptions options{.max_blocks = param.max_blocks, .defers_scratch = true};
      options.reserved_sms = param.reserved_sms;
      auto collectives = std::make_unique<Collectives>(comm, options);
      EXPECT_LE(collectives->max_kernel_scratch_bytes(), limit);
      EXPECT_GT(collectives->max_kernel_scratch_bytes(), limit / 3);
      EXPECT_LE(collectives->first_scratch_bytes(), first_limit);
      const std::uint64_t at_creation = collectives->scratch_bytes();
      RankCalls(comm, *collectives, small).run();
      EXPECT_EQ(collectives->scratch_bytes(), at_creation);
      RankCalls calls(comm, *collectives, large);
      calls.run();
      run_until_changed(comm, *collectives, calls);
      EXPECT_EQ(collectives->scratch_bytes() - at_creation + collectives->first_scratch_bytes(),
                collectives->max_kernel_scratch_bytes() + collectives->line_bytes());
      comm.exchange({}, {});
      if (group == &first_group)
        kept[static_cast<std::size_t>(comm.rank())] = std::move(collectives);
    });
  kept.clear();
}

/// What the first communicator of a GPU takes, and a later one, on the nodes of these tests: as much
/// as before there was a setting.
TEST_P(ScratchSizes, ByDefault_AllIsTakenAtCreation) {
  const SizeCase& param = GetParam();
  NEEDS_GPUS(param.ranks);
  if (!group_node().simulated) GTEST_SKIP() << "for the multiprocessors of the simulated GPUs";
  Group first_group(param.ranks);
  Group later_group(param.ranks);
  std::vector<std::unique_ptr<Collectives>> kept(static_cast<std::size_t>(param.ranks));
  for (Group* const group : {&first_group, &later_group})
    group->run([&](Communicator& comm) {
      CollectivesOptions options{.max_blocks = param.max_blocks};
      options.reserved_sms = param.reserved_sms;
      // One rank that takes all is enough.
      options.defers_scratch = group == &later_group && comm.rank() != 1;
      auto collectives = std::make_unique<Collectives>(comm, options);
      const std::uint32_t slot_bytes = group == &first_group ? 32 * kKiB : param.later_slot_bytes;
      const std::uint32_t cell_bytes = param.ranks == 2 ? 11 * kMiB / 2 : 3 * kMiB / 2;
      const ScratchLayout layout{{static_cast<std::uint32_t>(param.ranks), param.channels,
                                  /*slots=*/8, slot_bytes, cell_bytes}};
      EXPECT_EQ(collectives->first_scratch_bytes(), layout.bytes());
      EXPECT_EQ(collectives->first_scratch_bytes(), collectives->max_kernel_scratch_bytes());
      EXPECT_GE(collectives->scratch_bytes(),
                collectives->max_kernel_scratch_bytes() + collectives->line_bytes());
      // Plans say what runs: tiles fit in the slots that there are.
      const CollectiveCall large{.op = CollectiveOp::allreduce, .count = 16 * kMiB};
      const std::optional<KernelPlan> kernel =
          collectives->plan(large, AlgorithmOverride::kernels).kernel;
      ASSERT_TRUE(kernel);
      EXPECT_LE(kernel->slot_bytes, slot_bytes);
      EXPECT_GE(kernel->slot_bytes, std::min(slot_bytes, 28 * static_cast<std::uint32_t>(kKiB)));
      EXPECT_LE(kernel->blocks, static_cast<int>(param.channels));
      comm.exchange({}, {});
      if (group == &first_group)
        kept[static_cast<std::size_t>(comm.rank())] = std::move(collectives);
    });
  kept.clear();
}

INSTANTIATE_TEST_SUITE_P(All, ScratchSizes,
                         testing::Values(SizeCase{"two", 2, 0, 128, 112, 32 * kKiB},
                                         SizeCase{"four", 4, 0, 128, 112, 8 * kKiB},
                                         SizeCase{"four_next_to_nccl", 4, 32, 48, 48, 16 * kKiB},
                                         SizeCase{"eight", 8, 0, 128, 112, 8 * kKiB},
                                         SizeCase{"eight_next_to_nccl", 8, 32, 48, 48, 16 * kKiB}),
                         [](const auto& each) { return std::string(each.param.name); });

/// Ranks that start apart, and issue ahead of each other; small calls are among the large ones.
TEST_F(Scratch, SkewedStarts_ChangeAtOneCall) {
  const int ranks = gpus_up_to(4);
  Random random(7);
  std::vector<PlannedCall> row;
  for (int i = 0; i < 6; ++i)
    row.push_back(i % 3 == 2 ? small_call(random, ranks) : large_call(random, ranks));
  Group group(ranks);
  group.run([&](Communicator& comm) {
    Random own(static_cast<std::uint64_t>(comm.rank()));
    Collectives collectives(comm, kDeferred);
    RankCalls calls(comm, collectives, row);
    for (int turn = 0; turn < 3; ++turn) {
      if (own() % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 3000));
      calls.run();
    }
    run_until_changed(comm, collectives, calls);
    EXPECT_THAT(gathered(comm, collectives.counts().by_first_scratch),
                Each(collectives.counts().by_first_scratch));
    EXPECT_GT(collectives.counts().by_first_scratch, 0u);
  });
}

/// As after a creation that failed on some rank.
TEST_F(Scratch, CollectivesMadeAgain_TakeScratch) {
  const int ranks = gpus_up_to(3);
  const std::vector<PlannedCall> row = large_row(ranks, 3);
  Group group(ranks);
  group.run([&](Communicator& comm) {
    Collectives(comm, kDeferred);
    Collectives collectives(comm, kDeferred);
    RankCalls calls(comm, collectives, row);
    calls.run();
    run_until_changed(comm, collectives, calls);
    EXPECT_GT(collectives.counts().by_first_scratch, 0u);
  });
}

TEST_F(Scratch, LateRank_OthersUseFirstScratch) {
  const int ranks = gpus_up_to(3);
  const std::vector<PlannedCall> row = large_row(ranks, 3);
  Group group(ranks);
  group.run([&](Communicator& comm) {
    Collectives collectives(comm, kDeferred);
    RankCalls calls(comm, collectives, row);
    // The others issue all calls before the last rank has issued one: none may change.
    const bool is_late = comm.rank() == ranks - 1;
    if (is_late) comm.exchange({}, {});
    for (std::size_t i = 0; i < row.size(); ++i) calls.issue(i);
    if (!is_late) comm.exchange({}, {});
    calls.finish();
    EXPECT_EQ(collectives.counts().by_first_scratch, row.size());
    run_until_changed(comm, collectives, calls);
  });
}

TEST_F(Scratch, RanksOfOneThread_Change) {
  const int ranks = gpus_up_to(4);
  const std::vector<PlannedCall> row = large_row(ranks, 2);
  Group group(ranks);
  std::vector<std::unique_ptr<Collectives>> collectives(static_cast<std::size_t>(ranks));
  std::vector<std::unique_ptr<RankCalls>> calls(static_cast<std::size_t>(ranks));
  group.run([&](Communicator& comm) {
    const auto at = static_cast<std::size_t>(comm.rank());
    collectives[at] = std::make_unique<Collectives>(comm, kDeferred);
    calls[at] = std::make_unique<RankCalls>(comm, *collectives[at], row);
  });
  for (int turn = 0; turn < kCallsToChange; ++turn) {
    for (std::size_t rank = 0; rank < calls.size(); ++rank) {
      const CurrentContext current(driver(), group[static_cast<int>(rank)].context());
      calls[rank]->reset();
    }
    for (std::size_t i = 0; i < row.size(); ++i)
      for (std::size_t rank = 0; rank < calls.size(); ++rank) {
        const CurrentContext current(driver(), group[static_cast<int>(rank)].context());
        calls[rank]->issue(i);
      }
    for (std::size_t rank = 0; rank < calls.size(); ++rank) {
      const CurrentContext current(driver(), group[static_cast<int>(rank)].context());
      calls[rank]->finish();
    }
    for (const auto& each : collectives) each->wait_scratch();
  }
  for (const auto& each : collectives) {
    EXPECT_GT(each->counts().by_first_scratch, 0u);
    EXPECT_LT(each->counts().by_first_scratch, kCallsToChange * row.size());
    EXPECT_GT(each->scratch_bytes(), each->first_scratch_bytes());
  }
  for (std::size_t rank = 0; rank < calls.size(); ++rank) {
    const CurrentContext current(driver(), group[static_cast<int>(rank)].context());
    calls[rank].reset();
    collectives[rank].reset();
  }
}

TEST_F(Scratch, FirstCallIsCaptured_GraphKeepsItsScratch) {
  const int ranks = gpus_up_to(4);
  const std::vector<PlannedCall> captured = large_row(ranks, 2);
  Random random(9);
  const std::vector<PlannedCall> eager{large_call(random, ranks), small_call(random, ranks)};
  Group group(ranks);
  group.run([&](Communicator& comm) {
    Collectives collectives(comm, kDeferred);
    RankCalls in_graph(comm, collectives, captured);
    RankCalls calls(comm, collectives, eager);
    const CapturedRow early(driver(), in_graph.stream(), [&] {
      for (std::size_t i = 0; i < captured.size(); ++i) in_graph.issue(i);
    });
    EXPECT_EQ(collectives.counts().by_first_scratch, captured.size());
    const auto launch = [&](const CapturedRow& graph) {
      in_graph.reset();
      graph.launch(in_graph.stream());
      in_graph.finish();
      calls.run();
    };
    launch(early);
    run_until_changed(comm, collectives, calls);
    const std::uint64_t before = collectives.counts().by_first_scratch;
    const CapturedRow late(driver(), in_graph.stream(), [&] {
      for (std::size_t i = 0; i < captured.size(); ++i) in_graph.issue(i);
    });
    EXPECT_EQ(collectives.counts().by_first_scratch, before);
    for (int turn = 0; turn < 2; ++turn) {
      launch(early);
      launch(late);
    }
  });
}

/// Whether a call is captured may differ between ranks: before they change, and afterwards.
TEST_F(Scratch, CapturedOnOneRank_ScratchIsTheSame) {
  const int ranks = gpus_up_to(3);
  const std::vector<PlannedCall> row = large_row(ranks, 2);
  Group group(ranks);
  group.run([&](Communicator& comm) {
    Collectives collectives(comm, kDeferred);
    RankCalls calls(comm, collectives, row);
    const auto run_mixed = [&](int capturing) {
      calls.reset();
      if (comm.rank() == capturing) {
        const CapturedRow graph(driver(), calls.stream(), [&] {
          for (std::size_t i = 0; i < row.size(); ++i) calls.issue(i);
        });
        graph.launch(calls.stream());
        calls.finish();
      } else {
        calls.run();
      }
      comm.exchange({}, {});
    };
    run_mixed(1);
    EXPECT_EQ(collectives.counts().by_first_scratch, row.size());
    // Rank 1 has counted fewer calls. So the ranks take it in turn, and have all counted as many.
    for (int capturing : {0, 2}) run_mixed(capturing);
    run_until_changed(comm, collectives, calls);
    for (int capturing = 0; capturing < ranks; ++capturing) run_mixed(capturing);
  });
}

/// Ranks that have counted different calls change at different ones: an error, and no hang.
TEST_F(Scratch, CapturedOnOneRankAlone_EndsWithError) {
  const int ranks = gpus_up_to(3);
  const std::vector<PlannedCall> row = quick_row(ranks);
  Group group(ranks, {.time_limit = kFaultLimit});
  const std::vector<std::string> failures = group.failures([&](Communicator& comm) {
    Collectives collectives(comm, kDeferred);
    RankCalls calls(comm, collectives, row);
    calls.run();
    collectives.wait_scratch();
    comm.exchange({}, {});
    if (comm.rank() == 1) {
      calls.reset();
      const CapturedRow graph(driver(), calls.stream(), [&] { calls.issue(0); });
      graph.launch(calls.stream());
      calls.finish();
    } else {
      calls.run();
    }
    for (int i = 0; i < kCallsToChange + 2; ++i) calls.run();
  });
  EXPECT_THAT(failures, Each(testing::Not("")));
}

/// Calls of all sizes, also straight into recv, from skewed starts while the ranks change.
TEST_F(Scratch, RandomSizesAndDirectResults) {
  const int ranks = gpus_up_to(4);
  Random random(20261129);
  std::vector<PlannedCall> row;
  for (const ByteRange& bytes : {ByteRange{0, 60'000}, {100'000, 900'000}, {0, 0}, {1, 4'000}})
    row.push_back(planned_call(random, ranks, bytes));
  CollectiveCase& large = row[2].what;  // by channels, in either scratch
  large = {};
  large.ranks = static_cast<std::uint32_t>(ranks);
  large.count = 800'016;
  row[2].images = images_of(random, large);
  Group group(ranks);
  group.run([&](Communicator& comm) {
    Random own(static_cast<std::uint64_t>(comm.rank()));
    CollectivesOptions options = kDeferred;
    options.direct_results = comm.rank() != 1;
    Collectives collectives(comm, options);
    RankCalls calls(comm, collectives, row);
    const auto run_skewed = [&] {
      calls.reset();
      for (std::size_t i = 0; i < row.size(); ++i) {
        if (own() % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 1000));
        calls.issue(i, i == 2 ? AlgorithmOverride::uneven : AlgorithmOverride::planned);
      }
      calls.finish();
    };
    run_skewed();
    const std::uint64_t direct_first = collectives.counts().direct;
    for (int turn = 0; turn < 2; ++turn) run_skewed();
    run_until_changed(comm, collectives, calls);
    const std::uint64_t direct_before = collectives.counts().direct;
    run_skewed();
    if (options.direct_results &&
        ranks > 2) {  // two ranks sum in one hop, and store nothing remote
      EXPECT_GT(direct_first, 0u);
      EXPECT_GT(collectives.counts().direct, direct_before);
    }
    EXPECT_THAT(gathered(comm, collectives.counts().by_first_scratch),
                Each(collectives.counts().by_first_scratch));
  });
}

/// Further ahead than a stream takes calls: there a rank waits in the driver.
TEST_F(Scratch, CallsFarAhead_LateRankTakesScratch) {
  constexpr std::size_t kAhead = 300;  // the simulated driver lets a rank wait soon after that
  constexpr int ranks = 2;
  Random random(13);
  std::vector<PlannedCall> row = quick_row(ranks);
  while (row.size() < 1100) {
    PlannedCall call = planned_call(random, ranks, {8, 64});
    if (call.what.count > 0) row.push_back(std::move(call));
  }
  row.push_back(quick_row(ranks).front());
  std::atomic<std::size_t> issued{0};
  Group group(ranks);
  group.run([&](Communicator& comm) {
    Collectives collectives(comm, kDeferred);
    RankCalls calls(comm, collectives, row);
    if (comm.rank() == 1) {
      for (std::size_t count = 0; count < kAhead; count = issued) issued.wait(count);
    }
    for (std::size_t i = 0; i < row.size(); ++i) {
      calls.issue(i);
      if (comm.rank() != 0) continue;
      ++issued;
      issued.notify_all();
    }
    calls.finish();
    comm.exchange({}, {});
    EXPECT_GT(collectives.counts().by_first_scratch, 0u);
  });
}

/// A rank goes whose scratch another one waits for.
TEST_F(Scratch, RankLeaves_ThreadsOfOthersEnd) {
  const int ranks = gpus_up_to(3);
  const std::vector<PlannedCall> row = large_row(ranks, 1);
  Group group(ranks, {.time_limit = kFaultLimit});
  std::vector<std::unique_ptr<Collectives>> collectives(static_cast<std::size_t>(ranks));
  group.run([&](Communicator& comm) {
    auto& own = collectives[static_cast<std::size_t>(comm.rank())];
    own = std::make_unique<Collectives>(comm, kDeferred);
    if (comm.rank() == 1) return;
    RankCalls calls(comm, *own, row);
    const CapturedRow never_launched(driver(), calls.stream(), [&] { calls.issue(0); });
    EXPECT_EQ(own->counts().by_first_scratch, 1u);
  });
  collectives[1].reset();
  group.destroy(1);
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank == 1) continue;
    collectives[static_cast<std::size_t>(rank)]->wait_scratch();
    const CurrentContext current(driver(), group[rank].context());
    RankCalls calls(group[rank], *collectives[static_cast<std::size_t>(rank)], row);
    EXPECT_THROW(calls.run(), CommunicatorError) << rank;
  }
  collectives.clear();
}

/// Its thread waits for the others, which never come.
TEST_F(Scratch, AskedByOneRank_EndsWithoutOthers) {
  const int ranks = gpus_up_to(4);
  const std::vector<PlannedCall> row = large_row(ranks, 1);
  Group group(ranks);
  group.run([&](Communicator& comm) {
    Collectives collectives(comm, kDeferred);
    RankCalls calls(comm, collectives, row);
    if (comm.rank() == 0) {
      const CapturedRow never_launched(driver(), calls.stream(), [&] { calls.issue(0); });
      EXPECT_EQ(collectives.counts().by_first_scratch, 1u);
    }
    comm.exchange({}, {});
  });
}

/// More rows than the first scratch has cells for, and few, which stay there.
TEST_F(Scratch, Norms_AreFusedOnceThereIsRoom) {
  const int ranks = gpus_up_to(4);
  Random random(11);
  std::vector<PlannedNorm> norms;
  for (const std::uint32_t rows : {40U, 2U}) {
    NormCase what = random_norm(random, static_cast<std::uint32_t>(ranks), 2048, 200'000, 1);
    what.hidden = 2048;
    what.rows = rows;
    norms.push_back(planned(random, what));
  }
  Group group(ranks);
  group.run([&](Communicator& comm) {
    Collectives collectives(comm, kDeferred);
    const NormRow row(driver(), norms, comm.rank());
    const Stream stream(driver(), comm.context());
    const auto run = [&] {
      row.reset(norms);
      row.issue(collectives, norms, stream.get(), NormRoute::fused);
      POLYPATH_CHECK(driver(), stream_synchronize(stream.get()));
      comm.check();
      row.expect_done(norms);
      comm.exchange({}, {});
    };
    run();
    EXPECT_EQ(collectives.counts().norms_apart, 1u);
    EXPECT_EQ(collectives.counts().norms_fused, 1u);
    collectives.wait_scratch();
    comm.exchange({}, {});
    for (int i = 0; i < kCallsToChange; ++i) run();
    const std::uint64_t apart = collectives.counts().norms_apart;
    run();
    EXPECT_EQ(collectives.counts().norms_apart, apart);
    EXPECT_GT(collectives.scratch_bytes(), collectives.first_scratch_bytes());
  });
}

/// Memory that cannot be had before a stream's kernels have ended, or before a test says so.
std::atomic<CUstream> awaited_stream{nullptr};
std::atomic<bool> is_held{false};

std::shared_ptr<CudaDriver> driver_with_slow_memory() {
  auto slow = std::make_shared<CudaDriver>(*group_node().driver);
  slow->mem_alloc = [](CUdeviceptr* address, std::size_t bytes) {
    if (bytes >= kMuch) {
      is_held.wait(true);
      const CUstream stream = awaited_stream;
      while (stream != nullptr && driver().stream_query(stream) == CUDA_ERROR_NOT_READY)
        std::this_thread::yield();
    }
    return driver().mem_alloc(address, bytes);
  };
  return slow;
}

/// The thread waits for a kernel, which waits for a rank that never comes.
TEST_F(Scratch, MemoryWaitsForKernel_DestructionEndsBoth) {
  constexpr int ranks = 2;
  const std::vector<PlannedCall> row = large_row(ranks, 1);
  Group group(ranks, {.driver = driver_with_slow_memory()});
  const std::vector<std::string> failures = group.failures([&](Communicator& comm) {
    auto collectives = std::make_unique<Collectives>(comm, kDeferred);
    comm.exchange({}, {});
    if (comm.rank() == 0) {
      const CallRow memory(driver(), row, 0);
      const Stream stream(driver(), comm.context());
      awaited_stream = stream.get();
      collectives->run(memory.call(row, 0), stream.get());
      collectives.reset();
      POLYPATH_CHECK(driver(), stream_synchronize(stream.get()));
      awaited_stream = nullptr;
    }
    comm.exchange({}, {});  // it has been aborted
  });
  EXPECT_THAT(failures, Each(testing::HasSubstr("rank 0 ended its collectives")));
}

/// What ranks found while memory takes long; empty: nothing.
std::string failure_with_held_memory(DeferredFault fault) {
  const Planting<DeferredFault> planting(fault);
  const int ranks = gpus_up_to(3);
  const std::vector<PlannedCall> row = quick_row(ranks);
  Group group(ranks, {.time_limit = limit_of(fault), .driver = driver_with_slow_memory()});
  const std::vector<std::string> failures = group.failures([&](Communicator& comm) {
    Collectives collectives(comm, kDeferred);
    RankCalls calls(comm, collectives, row);
    comm.exchange({}, {});
    is_held = true;
    comm.exchange({}, {});
    std::exception_ptr error;
    try {
      for (int i = 0; i < kCallsToChange + 3; ++i) calls.run();
      EXPECT_EQ(collectives.counts().by_first_scratch, kCallsToChange + 3u);
      comm.exchange({}, {});
    } catch (...) {
      error = std::current_exception();
    }
    is_held = false;
    is_held.notify_all();
    if (error) std::rethrow_exception(error);
    run_until_changed(comm, collectives, calls);
  });
  for (const std::string& failure : failures)
    if (!failure.empty()) return failure;
  return {};
}

TEST_F(Scratch, MemoryTakesLong_NoCallWaits) {
  EXPECT_EQ("", failure_with_held_memory(DeferredFault::none));
}
TEST_F(Scratch, ReadyEarly_IsFound) {
  EXPECT_NE("", failure_with_held_memory(DeferredFault::ready_early));
}

/// Whether calls for much memory fail.
std::atomic<bool> is_failing{false};

struct FailingCall {
  const char* name;
  void (*plant)(CudaDriver& driver);
};

const FailingCall kFailingCalls[] = {
    {"alloc",
     [](CudaDriver& driver) {
       driver.mem_alloc = [](CUdeviceptr* address, std::size_t bytes) {
         if (is_failing && bytes >= kMuch) return CUDA_ERROR_OUT_OF_MEMORY;
         return group_node().driver->mem_alloc(address, bytes);
       };
     }},
    {"memset",
     [](CudaDriver& driver) {
       driver.memset_d8_async = [](CUdeviceptr at, unsigned char value, std::size_t bytes,
                                   CUstream stream) {
         if (is_failing && bytes >= kMuch) return CUDA_ERROR_UNKNOWN;
         return group_node().driver->memset_d8_async(at, value, bytes, stream);
       };
     }},
};

class FailingScratch : public testing::TestWithParam<FailingCall> {};

/// It is tried again at the calls 2, 4, 8 and 16.
TEST_P(FailingScratch, FirstScratchCarriesCalls) {
  NEEDS_GPUS(2);
  constexpr int ranks = 2;
  constexpr int kFailing = 9;
  const std::vector<PlannedCall> row = large_row(ranks, 1);
  const auto failing = std::make_shared<CudaDriver>(*group_node().driver);
  GetParam().plant(*failing);
  is_failing = false;
  Group group(ranks, {.driver = failing});
  group.run([&](Communicator& comm) {
    Collectives collectives(comm, kDeferred);
    const std::uint64_t first = collectives.scratch_bytes();
    RankCalls calls(comm, collectives, row);
    comm.exchange({}, {});
    is_failing = true;
    comm.exchange({}, {});
    for (int i = 0; i < kFailing; ++i) {
      calls.run();
      collectives.wait_scratch();
    }
    EXPECT_EQ(collectives.counts().by_first_scratch, kFailing);
    comm.exchange({}, {});
    is_failing = false;
    comm.exchange({}, {});
    for (int i = kFailing; i < 16; ++i) calls.run();
    run_until_changed(comm, collectives, calls);
    EXPECT_GT(collectives.scratch_bytes(), first);
  });
}

INSTANTIATE_TEST_SUITE_P(All, FailingScratch, testing::ValuesIn(kFailingCalls),
                         [](const auto& each) { return std::string(each.param.name); });

/// What a rank found: calls that differ, that do not end, or bytes that are wrong.
std::string failure_with(DeferredFault fault) {
  const Planting<DeferredFault> planting(fault);
  const int ranks = gpus_up_to(3);
  const std::vector<PlannedCall> row = large_row(ranks, 1);
  Group group(ranks, {.time_limit = limit_of(fault)});
  const std::vector<std::string> failures = group.failures([&](Communicator& comm) {
    Collectives collectives(comm, kDeferred);
    const CallRow memory(driver(), row, comm.rank());
    const Stream stream(driver(), comm.context());
    for (int call = 0; call < kCallsToChange + 3; ++call) {
      memory.reset(row);
      collectives.run(memory.call(row, 0), stream.get());
      POLYPATH_CHECK(driver(), stream_synchronize(stream.get()));
      comm.check();
      if (const std::string wrong = memory.difference_of(row); !wrong.empty()) throw Error(wrong);
      if (call == 0) collectives.wait_scratch();
      comm.exchange({}, {});
    }
  });
  for (const std::string& failure : failures)
    if (!failure.empty()) return failure;
  return {};
}

TEST_F(Scratch, NoFault_NothingIsFound) { EXPECT_EQ("", failure_with(DeferredFault::none)); }
TEST_F(Scratch, UsedEarly_IsFound) { EXPECT_NE("", failure_with(DeferredFault::used_early)); }
TEST_F(Scratch, UsedLate_IsFound) { EXPECT_NE("", failure_with(DeferredFault::used_late)); }

}  // namespace
}  // namespace polypath::test
