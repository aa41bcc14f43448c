// Collectives of some of a node's GPUs whose copies go over the others as well, over ranks that are
// threads: every byte is compared, and what went over the links of the idle GPUs is counted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "base/error.hpp"
#include "base/units.hpp"
#include "collectives/plan/schedule_stages.hpp"
#include "collectives/relay_times.hpp"
#include "core/context.hpp"
#include "driver/check.hpp"
#include "driver/context_guard.hpp"
#include "exec/devices.hpp"
#include "group.hpp"
#include "schedule_calls.hpp"
#include "support/driver_extras.hpp"

namespace polypath::test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::Gt;
using testing::IsEmpty;

constexpr int kGpus = 4;

const std::shared_ptr<const CudaDriver>& driver() { return group_node().driver; }

std::uint64_t bytes_over(int from, int to) {
  auto* const count = driver_function<std::uint64_t(const char*, const char*)>(
      *driver(), "polypath_sim_link_bytes");
  return count == nullptr
             ? 0
             : count(to_string(MemoryId::gpu(from)).c_str(), to_string(MemoryId::gpu(to)).c_str());
}

/// Bytes of all links to an idle GPU, or from it.
struct RelayBytes {
  std::uint64_t in = 0;
  std::uint64_t out = 0;
};
RelayBytes bytes_over_relay(int relay, int ranks) {
  RelayBytes bytes;
  for (int rank = 0; rank < ranks; ++rank) {
    bytes.in += bytes_over(rank, relay);
    bytes.out += bytes_over(relay, rank);
  }
  return bytes;
}

/// A row of calls of every operation, one of them large.
std::vector<PlannedCall> row_of(Random& random, int ranks,
                                AlgorithmOverride choice = AlgorithmOverride::relayed,
                                int calls = 6) {
  std::vector<PlannedCall> row;
  for (int i = 0; i < calls; ++i)
    row.push_back(call_for(random, ranks, choice, i == 0 ? 3 << 20 : 60000));
  return row;
}

/// Calls over relays, by copies or by kernels.
std::uint64_t relayed_calls(const CollectiveCounts& counts) {
  return counts.relayed + counts.relayed_flat;
}
/// What of this rank went over relays: copies, or calls by kernels.
std::uint64_t relayed_parts(const Collectives& collectives) {
  return collectives.relayed_copies() + collectives.counts().relayed_flat;
}

class RelaysTest : public testing::Test {
 protected:
  void SetUp() override {
    if (gpus_up_to(kGpus) < kGpus) GTEST_SKIP() << "needs four GPUs";
    devices_.emplace(driver(), group_node().nvml, group_node().node);
  }

  [[nodiscard]] CollectivesOptions options() {
    CollectivesOptions options = kWithCopies;
    options.relays.devices = &*devices_;
    options.relayed_kernels = by_kernels_;
    return options;
  }

  /// Runs the row by relays on each rank; asserts results and counts. `then` on each rank.
  void run(Group& group, const std::vector<PlannedCall>& row, Random& random,
           const std::function<void(Communicator&, Collectives&)>& then) {
    const std::uint64_t seed = random();
    group.run([&](Communicator& comm) {
      Collectives collectives(comm, options());
      run_row(comm, collectives, row, seed, choice());
      then(comm, collectives);
      comm.exchange({}, {});
    });
  }

  static void run_row(Communicator& comm, Collectives& collectives,
                      const std::vector<PlannedCall>& row, std::uint64_t seed,
                      AlgorithmOverride choice = AlgorithmOverride::relayed) {
    Random own(seed + static_cast<std::uint64_t>(comm.rank()));
    const std::uint64_t before = relayed_calls(collectives.counts());
    std::vector<Stream> streams;
    for (int i = 0; i < 2; ++i) streams.emplace_back(*driver(), comm.context());
    const CallRow memory(*driver(), row, comm.rank());
    for (std::size_t i = 0; i < row.size(); ++i) {
      std::this_thread::sleep_for(std::chrono::microseconds(own() % 1000));
      collectives.run(memory.call(row, i), streams[own() % streams.size()].get(), choice);
    }
    for (const Stream& stream : streams)
      POLYPATH_CHECK(*driver(), stream_synchronize(stream.get()));
    comm.check();
    memory.expect_done(row);
    EXPECT_EQ(relayed_calls(collectives.counts()) - before, calls_of(row));
  }

  [[nodiscard]] AlgorithmOverride choice() const {
    return by_kernels_ ? AlgorithmOverride::relayed_flat : AlgorithmOverride::relayed;
  }

  bool by_kernels_ = false;
  std::optional<Devices> devices_;
};

struct RanksOver {
  int ranks;
  bool by_kernels;
};
void PrintTo(const RanksOver& what, std::ostream* to) {
  *to << what.ranks << (what.by_kernels ? " by kernels" : " by copies");
}

class RelaysOf : public RelaysTest, public testing::WithParamInterface<RanksOver> {
 protected:
  RelaysOf() { by_kernels_ = GetParam().by_kernels; }
};

TEST_P(RelaysOf, SkewedRowsOfAllOperations) {
  const int ranks = GetParam().ranks;
  Random random(20261128 + static_cast<std::uint64_t>(ranks));
  for (int turn = 0; turn < 3; ++turn) {
    Group group(ranks);
    std::vector<RelayBytes> before;
    for (int relay = ranks; relay < kGpus; ++relay)
      before.push_back(bytes_over_relay(relay, ranks));
    const std::vector<PlannedCall> row = row_of(random, ranks, choice());
    run(group, row, random, [&](Communicator&, const Collectives& collectives) {
      EXPECT_EQ(collectives.relays().size(), static_cast<std::size_t>(kGpus - ranks));
    });
    if (by_kernels_ && !in_virtual_time()) continue;  // bytes of kernels are not counted there
    for (int relay = ranks; relay < kGpus; ++relay) {
      const RelayBytes now = bytes_over_relay(relay, ranks);
      const RelayBytes& then = before[static_cast<std::size_t>(relay - ranks)];
      EXPECT_GT(now.in, then.in);
      EXPECT_EQ(now.in - then.in, now.out - then.out);
    }
  }
}

TEST_P(RelaysOf, EachLinkCarriesWhatThePlanSays) {
  if (by_kernels_) GTEST_SKIP() << "a plan by kernels has no schedule";
  const int ranks = GetParam().ranks;
  const Node& node = group_node().node;
  for (const CollectiveOp op :
       {CollectiveOp::allreduce, CollectiveOp::all_gather, CollectiveOp::reduce_scatter,
        CollectiveOp::all_to_all, CollectiveOp::broadcast, CollectiveOp::reduce}) {
    SCOPED_TRACE(to_string(op));
    Random random(8);
    std::vector<PlannedCall> row(1);
    row.front().what.op = op;
    row.front().what.ranks = static_cast<std::uint32_t>(ranks);
    row.front().what.count = 1 << 18;
    row.front().images = images_of(random, row.front().what);
    std::vector<std::uint64_t> before;
    std::vector<std::uint64_t> after;
    const auto all_bytes = [&] {
      std::vector<std::uint64_t> bytes;
      for (int from = 0; from < kGpus; ++from)
        for (int to = 0; to < kGpus; ++to) bytes.push_back(bytes_over(from, to));
      return bytes;
    };
    CollectivePlan plan;
    Group group(ranks);
    group.run([&](Communicator& comm) {
      Collectives collectives(comm, options());
      const Stream stream(*driver(), comm.context());
      const CallRow memory(*driver(), row, comm.rank());
      comm.exchange({}, {});
      if (comm.rank() == 0) before = all_bytes();
      comm.exchange({}, {});
      const CollectiveCall call = memory.call(row, 0);
      collectives.run(call, stream.get(), AlgorithmOverride::relayed);
      POLYPATH_CHECK(*driver(), stream_synchronize(stream.get()));
      comm.check();
      comm.exchange({}, {});
      if (comm.rank() == 0) after = all_bytes();
      comm.exchange({}, {});
      memory.expect_done(row);
      if (comm.rank() == 0) plan = collectives.plan(call, AlgorithmOverride::relayed);
    });
    std::vector<double> expected(kGpus * kGpus, 0);
    for (const LinkBytes& stage : stage_bytes(node, make_collective_schedule(node, plan)))
      for (std::size_t i = 0; i < stage.size(); ++i)
        if (const Link& link = node.links[i]; link.from.is_gpu() && link.to.is_gpu())
          expected[static_cast<std::size_t>(link.from.index * kGpus + link.to.index)] += stage[i];
    const double marks = 16.0 * ranks * (ranks - 1);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_GE(static_cast<double>(after[i] - before[i]), expected[i]) << i;
      EXPECT_LE(static_cast<double>(after[i] - before[i]), expected[i] + marks) << i;
    }
  }
}

TEST_P(RelaysOf, GraphsAreLaunchedAgainAmongCalls) {
  const int ranks = GetParam().ranks;
  Group group(ranks);
  group.run([&](Communicator& comm) {
    GraphGame game(comm, choice(), options());
    for (int turn = 0; turn < 3; ++turn) EXPECT_EQ(game.turn(), "");
    game.expect_counts();
    EXPECT_GT(relayed_parts(game.collectives()), 0u);
    comm.exchange({}, {});
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, RelaysOf,
                         testing::Values(RanksOver{2, false}, RanksOver{3, false},
                                         RanksOver{2, true}, RanksOver{3, true}),
                         [](const auto& each) {
                           return std::to_string(each.param.ranks) +
                                  (each.param.by_kernels ? "ByKernels" : "ByCopies");
                         });

/// Calls that are planned over relays, by kernels or by copies.
class PlannedOver : public RelaysTest, public testing::WithParamInterface<bool> {
 protected:
  PlannedOver() { by_kernels_ = GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Relays, PlannedOver, testing::Bool(), [](const auto& each) {
  return std::string(each.param ? "ByKernels" : "ByCopies");
});

/// Allreduces that are planned over relays.
std::vector<PlannedCall> planned_row(Random& random, int calls) {
  std::vector<PlannedCall> row(static_cast<std::size_t>(calls));
  for (PlannedCall& call : row) {
    call.what.ranks = 2;
    call.what.count = (8 << 20) + random() % 4096;
    call.images = images_of(random, call.what);
  }
  return row;
}

/// One rank's planned calls, one row after another.
class PlannedRows {
 public:
  PlannedRows(Communicator& comm, Collectives& collectives, const std::vector<PlannedCall>& row)
      : comm_(comm),
        collectives_(collectives),
        row_(row),
        stream_(*driver(), comm.context()),
        memory_(*driver(), row, comm.rank()),
        own_(static_cast<std::uint64_t>(comm.rank())) {}

  /// From skewed starts; ranks are at most `apart` calls apart. Every element is compared.
  void run(std::size_t apart = 2) {
    memory_.reset(row_);
    comm_.exchange({}, {});
    for (std::size_t i = 0; i < row_.size(); ++i) {
      std::this_thread::sleep_for(std::chrono::microseconds(own_() % 1000));
      collectives_.run(memory_.call(row_, i), stream_.get());
      if (i % apart == apart - 1) comm_.exchange({}, {});
    }
    POLYPATH_CHECK(*driver(), stream_synchronize(stream_.get()));
    comm_.check();
    memory_.expect_done(row_);
    issued_ += row_.size();
    const CollectiveCounts& counts = collectives_.counts();
    EXPECT_EQ(all_calls(counts), issued_);
    const std::uint64_t relayed = relayed_calls(counts);
    EXPECT_EQ(relayed + counts.without_relays, issued_);
    std::vector<std::uint64_t> all(static_cast<std::size_t>(comm_.size()));
    comm_.exchange(std::as_bytes(std::span(&relayed, 1)), std::as_writable_bytes(std::span(all)));
    EXPECT_THAT(all, Each(relayed)) << "ranks planned calls differently";
  }
  [[nodiscard]] CUstream stream() const noexcept { return stream_.get(); }

 private:
  Communicator& comm_;
  Collectives& collectives_;
  const std::vector<PlannedCall>& row_;
  Stream stream_;
  CallRow memory_;
  Random own_;
  std::uint64_t issued_ = 0;
};

/// Calls until all ranks have come to a new level.
constexpr int kToChange = 8;

/// The plan takes them without being asked, once they are ready on all ranks; until then calls go as
/// where no GPU is idle.
TEST_P(PlannedOver, LargeCalls_OnceReady) {
  if (in_virtual_time()) GTEST_SKIP() << "its calls are large: in the other mode";
  Random random(3);
  const std::vector<PlannedCall> row = planned_row(random, kToChange);
  Group group(2);
  group.run([&](Communicator& comm) {
    Collectives collectives(comm, options());
    PlannedRows rows(comm, collectives, row);
    rows.run();
    collectives.wait_relays();
    comm.exchange({}, {});
    rows.run();
    const std::uint64_t early = relayed_parts(collectives);
    const std::uint64_t without = collectives.counts().without_relays;
    EXPECT_GE(without, 1u);
    EXPECT_EQ(collectives.counts().pairwise, 0u);
    rows.run();
    EXPECT_EQ(collectives.counts().without_relays, without);
    EXPECT_GT(relayed_parts(collectives), early);
    EXPECT_THAT(collectives.relays(), ElementsAre(2, 3));
    comm.exchange({}, {});
  });
}

/// Memory on relays, as one rank finds it: only while the gate is open.
std::atomic<bool> is_gate_open{false};
std::shared_ptr<CudaDriver> gated_driver() {
  auto gated = std::make_shared<CudaDriver>(*driver());
  gated->mem_create = [](CUmemGenericAllocationHandle* handle, std::size_t bytes,
                         const CUmemAllocationProp* what, unsigned long long flags) {
    is_gate_open.wait(false);
    return group_node().driver->mem_create(handle, bytes, what, flags);
  };
  gated->mem_alloc = [](CUdeviceptr* address, std::size_t bytes) {
    is_gate_open.wait(false);
    return group_node().driver->mem_alloc(address, bytes);
  };
  return gated;
}

TEST_P(PlannedOver, ReadyLateOnOneRank_AllChangeAtOneCall) {
  if (!in_virtual_time()) GTEST_SKIP() << "its calls are large: in the other mode";
  is_gate_open = false;
  Devices late(gated_driver(), group_node().nvml, group_node().node);
  Random random(13);
  const std::vector<PlannedCall> row = planned_row(random, kToChange);
  Group group(2);
  group.run([&](Communicator& comm) {
    CollectivesOptions rank_options = options();
    if (comm.rank() == 1) rank_options.relays.devices = &late;
    Collectives collectives(comm, rank_options);
    PlannedRows rows(comm, collectives, row);
    rows.run();
    // Each rank makes a part of the memory for kernels, so the first one waits for the other.
    if (comm.rank() == 0 && !by_kernels_) collectives.wait_relays();
    rows.run();
    EXPECT_EQ(relayed_calls(collectives.counts()), 0u);
    if (comm.rank() == 1) {
      is_gate_open = true;
      is_gate_open.notify_all();
      collectives.wait_relays();
    }
    if (comm.rank() == 0) collectives.wait_relays();
    comm.exchange({}, {});
    rows.run();
    EXPECT_GT(relayed_calls(collectives.counts()), 0u);
    EXPECT_GT(relayed_parts(collectives), 0u);
    comm.exchange({}, {});
  });
}

TEST_P(PlannedOver, CannotBeHadOnOneRank_AllGoAsAlone) {
  if (!in_virtual_time()) GTEST_SKIP() << "its calls are large: in the other mode";
  auto failing = std::make_shared<CudaDriver>(*driver());
  failing->mem_create = [](CUmemGenericAllocationHandle*, std::size_t, const CUmemAllocationProp*,
                           unsigned long long) { return CUDA_ERROR_OUT_OF_MEMORY; };
  failing->mem_alloc = [](CUdeviceptr*, std::size_t) { return CUDA_ERROR_OUT_OF_MEMORY; };
  Devices without(failing, group_node().nvml, group_node().node);
  Random random(14);
  const std::vector<PlannedCall> row = planned_row(random, kToChange);
  Group group(2);
  group.run([&](Communicator& comm) {
    CollectivesOptions rank_options = options();
    if (comm.rank() == 1) rank_options.relays.devices = &without;
    Collectives collectives(comm, rank_options);
    PlannedRows rows(comm, collectives, row);
    rows.run();
    collectives.wait_relays();
    rows.run();
    const CollectiveCounts& counts = collectives.counts();
    EXPECT_EQ(counts.without_relays, 2 * row.size());
    EXPECT_EQ(relayed_calls(counts) + counts.pairwise, 0u);
    EXPECT_EQ(collectives.relayed_copies(), 0u);
    comm.exchange({}, {});
  });
}

TEST_P(PlannedOver, LostOnOneRank_AllGoAsAloneAgain) {
  if (in_virtual_time()) GTEST_SKIP() << "its calls are large: in the other mode";
  Random random(15);
  const std::vector<PlannedCall> row = planned_row(random, kToChange);
  Devices devices_of_last(driver(), group_node().nvml, group_node().node);
  Group group(2);
  group.run([&](Communicator& comm) {
    CollectivesOptions rank_options = options();
    if (comm.rank() == 1) rank_options.relays.devices = &devices_of_last;
    Collectives collectives(comm, rank_options);
    PlannedRows rows(comm, collectives, row);
    rows.run();
    collectives.wait_relays();
    comm.exchange({}, {});
    rows.run();
    rows.run();
    EXPECT_GT(relayed_parts(collectives), 0u);
    if (comm.rank() == 1) devices_of_last.mark_failed(3, CUDA_ERROR_ECC_UNCORRECTABLE);
    rows.run();
    const std::uint64_t relayed = relayed_calls(collectives.counts());
    rows.run();
    EXPECT_EQ(relayed_calls(collectives.counts()), relayed);
    comm.exchange({}, {});
  });
}

TEST_F(RelaysTest, RefusedOnOneRank_NoneUsesThem) {
  Random random(4);
  std::vector<PlannedCall> row(1);
  row.front().what.ranks = 2;
  row.front().what.count = 8 << 20;
  row.front().images = images_of(random, row.front().what);
  Group group(2);
  group.run([&](Communicator& comm) {
    CollectivesOptions rank_options = options();
    if (comm.rank() == 1) rank_options.relays = {};
    Collectives collectives(comm, rank_options);
    const Stream stream(*driver(), comm.context());
    const CallRow memory(*driver(), row, comm.rank());
    collectives.run(memory.call(row, 0), stream.get());
    POLYPATH_CHECK(*driver(), stream_synchronize(stream.get()));
    comm.check();
    memory.expect_done(row);
    EXPECT_THAT(collectives.relays(), IsEmpty());
    EXPECT_EQ(collectives.counts().relayed, 0u);
    EXPECT_EQ(all_calls(collectives.counts()), 1u);
    comm.exchange({}, {});
  });
}

/// A rank alone that finds no memory on a relay sends all by its own links.
TEST_F(RelaysTest, NoMemoryOnOneRank_ItAloneGoesWithout) {
  auto failing = std::make_shared<CudaDriver>(*driver());
  failing->mem_create = [](CUmemGenericAllocationHandle*, std::size_t, const CUmemAllocationProp*,
                           unsigned long long) { return CUDA_ERROR_OUT_OF_MEMORY; };
  failing->mem_alloc = [](CUdeviceptr*, std::size_t) { return CUDA_ERROR_OUT_OF_MEMORY; };
  Devices without(failing, group_node().nvml, group_node().node);
  Random random(5);
  const std::vector<PlannedCall> row = row_of(random, 2);
  Group group(2);
  group.run([&](Communicator& comm) {
    CollectivesOptions rank_options = options();
    if (comm.rank() == 1) rank_options.relays.devices = &without;
    Collectives collectives(comm, rank_options);
    run_row(comm, collectives, row, 6);
    EXPECT_EQ(collectives.relays().size(), 2u);
    EXPECT_EQ(collectives.relayed_copies() > 0, comm.rank() == 0);
    comm.exchange({}, {});
  });
}

/// Every call in a relay's context fails from now on: its copies go another way, in this call too.
TEST_F(RelaysTest, LostBetweenCalls_OthersGoOn) {
  Random random(7);
  const std::vector<PlannedCall> row = row_of(random, 2, AlgorithmOverride::relayed, 3);
  Group group(2);
  std::uint64_t over_last = 0;
  group.run([&](Communicator& comm) {
    Collectives collectives(comm, options());
    run_row(comm, collectives, row, 8);
    const std::uint64_t first = collectives.relayed_copies();
    EXPECT_GT(first, 0u);
    comm.exchange({}, {});
    if (comm.rank() == 0) {
      devices_->mark_failed(3, CUDA_ERROR_ECC_UNCORRECTABLE);
      over_last = bytes_over_relay(3, 2).in;
    }
    comm.exchange({}, {});
    run_row(comm, collectives, row, 9);
    EXPECT_GT(collectives.relayed_copies(), first);
    EXPECT_LT(collectives.relayed_copies(), 2 * first);
    comm.exchange({}, {});
    EXPECT_EQ(bytes_over_relay(3, 2).in, over_last);
    comm.exchange({}, {});
  });
}

/// The driver refuses copies of streams that are not the rank's: in the midst of a call.
class RefusedCopies : public RelaysTest, public testing::WithParamInterface<int> {};

std::atomic<int> copies_left{0};
CUresult (*plain_copy)(CUdeviceptr, CUdeviceptr, std::size_t, CUstream) = nullptr;

TEST_P(RefusedCopies, RestGoesWithout) {
  auto failing = std::make_shared<CudaDriver>(*driver());
  plain_copy = driver()->memcpy_async;
  failing->memcpy_async = [](CUdeviceptr dst, CUdeviceptr src, std::size_t bytes, CUstream stream) {
    CUcontext context = nullptr;
    CUdevice gpu = 0;
    CUcontext before = nullptr;
    group_node().driver->ctx_get_current(&before);
    group_node().driver->stream_get_ctx(stream, &context);
    group_node().driver->ctx_set_current(context);
    group_node().driver->ctx_get_device(&gpu);
    group_node().driver->ctx_set_current(before);
    if (gpu >= 2 && copies_left.fetch_sub(1) <= 0) return CUDA_ERROR_LAUNCH_FAILED;
    return plain_copy(dst, src, bytes, stream);
  };
  copies_left = GetParam();
  Random random(10);
  const std::vector<PlannedCall> row = row_of(random, 2);
  Group group(2, {.driver = failing});
  group.run([&](Communicator& comm) {
    Collectives collectives(comm, options());
    run_row(comm, collectives, row, 11);
    comm.exchange({}, {});
    run_row(comm, collectives, row, 12);
    comm.exchange({}, {});
  });
  EXPECT_LE(copies_left.load(), 0);
}

INSTANTIATE_TEST_SUITE_P(After, RefusedCopies, testing::Values(0, 1, 5, 12, 21),
                         [](const auto& param_info) { return std::to_string(param_info.param); });

/// Nothing is left on an idle GPU.
TEST_F(RelaysTest, EndLeavesNoObjects) {
  Random random(12);
  const std::vector<PlannedCall> row = row_of(random, 2, AlgorithmOverride::relayed, 2);
  LiveObjects before;
  for (int turn = 0; turn < 2; ++turn) {
    {
      Group group(2);
      run(group, row, random, [](Communicator&, const Collectives&) {});
    }
    if (turn == 0) before = live_objects(*driver());
    EXPECT_EQ(live_objects(*driver()), before);
  }
}

/// Channels of two ways over a relay each and one straight: {straight, over relay 0, over relay 1}.
std::vector<std::uint32_t> times_of(std::array<std::uint32_t, 3> ns) {
  constexpr std::uint32_t kClock = 0xFFFFFF00;  // which goes round meanwhile
  std::vector<std::uint32_t> words;
  for (const std::uint32_t each : ns) words.insert(words.end(), {kClock, kClock + each});
  return words;
}

TEST(RelayVerdict, SlowTwice_IsLeftOutForLongerEachTime) {
  constexpr ChannelWays kWays{2, 2};
  const auto slow = times_of({100'000, 100'000, 160'000});
  const auto alike = times_of({100'000, 145'000, 90'000});
  RelayVerdict verdict;
  std::uint64_t now_ns = 1'000'000'000;
  verdict.take(slow, kWays, now_ns);
  EXPECT_TRUE(verdict.is_suspect());
  EXPECT_FALSE(verdict.is_slow(now_ns)) << "once may be chance";
  verdict.take(alike, kWays, now_ns);
  verdict.take(slow, kWays, now_ns);
  EXPECT_FALSE(verdict.is_slow(now_ns)) << "not in sequence";
  std::uint64_t hold_ns = RelayVerdict::kShortestNs;
  verdict.take(slow, kWays, now_ns);
  for (int turn = 0; turn < 10; ++turn) {
    EXPECT_TRUE(verdict.is_slow(now_ns + hold_ns - 1));
    EXPECT_FALSE(verdict.is_slow(now_ns + hold_ns));
    now_ns += hold_ns;
    hold_ns = std::min(2 * hold_ns, RelayVerdict::kLongestNs);
    verdict.take(slow, kWays, now_ns);
    verdict.take(slow, kWays, now_ns);
  }
  verdict.take(alike, kWays, now_ns += hold_ns);
  verdict.take(slow, kWays, now_ns);
  verdict.take(slow, kWays, now_ns);
  EXPECT_FALSE(verdict.is_slow(now_ns + RelayVerdict::kShortestNs)) << "from the beginning again";
}

TEST(RelayVerdict, ChannelsWithoutTiles_AreLeftOut) {
  RelayVerdict verdict;
  std::vector<std::uint32_t> words = times_of({100'000, 100'000, 100'000});
  words[4] = 0;
  for (int i = 0; i < 4; ++i) verdict.take(words, {2, 2}, 1);
  EXPECT_FALSE(verdict.is_suspect());
}

TEST(RelayVerdict, ShortCalls_SayNothing) {
  constexpr ChannelWays kWays{2, 2};
  RelayVerdict verdict;
  for (int i = 0; i < 4; ++i) verdict.take(times_of({1'000, 15'000, 15'000}), kWays, 1);
  EXPECT_FALSE(verdict.is_suspect());
  EXPECT_FALSE(verdict.is_slow(1));
}

}  // namespace
}  // namespace polypath::test
