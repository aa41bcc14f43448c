// Collectives of some of a node's GPUs whose kernels send over the others as well, by ranks that are
// threads: every byte is compared, and what went over the links of the idle GPUs is counted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <thread>

#include "collectives/relay_times.hpp"
#include "driver/check.hpp"
#include "exec/devices.hpp"
#include "group.hpp"
#include "schedule_calls.hpp"
#include "support/driver_extras.hpp"

namespace polypath::test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr int kGpus = 4;
/// With these planned_row() is planned over relays.
constexpr int kBlocks = 16;

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
std::vector<PlannedCall> row_of(Random& random, int ranks, int calls = 6) {
  std::vector<PlannedCall> row;
  for (int i = 0; i < calls; ++i)
    row.push_back(call_for(random, ranks, AlgorithmOverride::relayed, i == 0 ? 3 << 20 : 60000));
  return row;
}

class RelaysTest : public testing::Test {
 protected:
  void SetUp() override {
    if (gpus_up_to(kGpus) < kGpus) GTEST_SKIP() << "needs four GPUs";
    devices_.emplace(driver(), group_node().nvml, group_node().node);
  }

  [[nodiscard]] CollectivesOptions options() {
    CollectivesOptions options = kWithCopies;
    options.max_blocks = kBlocks;
    options.relays.devices = &*devices_;
    return options;
  }

  /// Runs the row by relays on each rank; asserts results and counts. `then` on each rank.
  void run(Group& group, const std::vector<PlannedCall>& row, Random& random,
           const std::function<void(Communicator&, Collectives&)>& then) {
    const std::uint64_t seed = random();
    group.run([&](Communicator& comm) {
      Collectives collectives(comm, options());
      run_row(comm, collectives, row, seed);
      then(comm, collectives);
      comm.exchange({}, {});
    });
  }

  static void run_row(Communicator& comm, Collectives& collectives,
                      const std::vector<PlannedCall>& row, std::uint64_t seed) {
    Random own(seed + static_cast<std::uint64_t>(comm.rank()));
    const std::uint64_t before = collectives.counts().relayed;
    std::vector<Stream> streams;
    for (int i = 0; i < 2; ++i) streams.emplace_back(*driver(), comm.context());
    const CallRow memory(*driver(), row, comm.rank());
    for (std::size_t i = 0; i < row.size(); ++i) {
      std::this_thread::sleep_for(std::chrono::microseconds(own() % 1000));
      collectives.run(memory.call(row, i), streams[own() % streams.size()].get(),
                      AlgorithmOverride::relayed);
    }
    for (const Stream& stream : streams)
      POLYPATH_CHECK(*driver(), stream_synchronize(stream.get()));
    comm.check();
    memory.expect_done(row);
    EXPECT_EQ(collectives.counts().relayed - before, calls_of(row));
  }

  std::optional<Devices> devices_;
};

class RelaysOf : public RelaysTest, public testing::WithParamInterface<int> {};

TEST_P(RelaysOf, SkewedRowsOfAllOperations) {
  const int ranks = GetParam();
  Random random(20261128 + static_cast<std::uint64_t>(ranks));
  for (int turn = 0; turn < 3; ++turn) {
    Group group(ranks);
    std::vector<RelayBytes> before;
    for (int relay = ranks; relay < kGpus; ++relay)
      before.push_back(bytes_over_relay(relay, ranks));
    const std::vector<PlannedCall> row = row_of(random, ranks);
    run(group, row, random, [&](Communicator&, const Collectives& collectives) {
      EXPECT_EQ(collectives.relays().size(), static_cast<std::size_t>(kGpus - ranks));
    });
    if (!in_virtual_time()) continue;  // bytes of kernels are not counted there
    for (int relay = ranks; relay < kGpus; ++relay) {
      const RelayBytes now = bytes_over_relay(relay, ranks);
      const RelayBytes& then = before[static_cast<std::size_t>(relay - ranks)];
      EXPECT_GT(now.in, then.in);
      EXPECT_EQ(now.in - then.in, now.out - then.out);
    }
  }
}

TEST_P(RelaysOf, GraphsAreLaunchedAgainAmongCalls) {
  const int ranks = GetParam();
  Group group(ranks);
  group.run([&](Communicator& comm) {
    GraphGame game(comm, AlgorithmOverride::relayed, options());
    for (int turn = 0; turn < 3; ++turn) EXPECT_EQ(game.turn(), "");
    game.expect_counts();
    comm.exchange({}, {});
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, RelaysOf, testing::Values(2, 3),
                         [](const auto& each) { return std::to_string(each.param); });

/// Allreduces that are planned over relays.
std::vector<PlannedCall> planned_row(Random& random, int calls) {
  std::vector<PlannedCall> row(static_cast<std::size_t>(calls));
  for (PlannedCall& call : row) {
    call.what.ranks = 2;
    call.what.count = (1 << 20) + random() % 4096;
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
    const std::uint64_t relayed = counts.relayed;
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
TEST_F(RelaysTest, LargeCalls_OnceReady) {
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
    const std::uint64_t early = collectives.counts().relayed;
    const std::uint64_t without = collectives.counts().without_relays;
    EXPECT_GE(without, 1u);
    EXPECT_EQ(collectives.counts().pairwise, 0u);
    rows.run();
    EXPECT_EQ(collectives.counts().without_relays, without);
    EXPECT_GT(collectives.counts().relayed, early);
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

TEST_F(RelaysTest, ReadyLateOnOneRank_AllChangeAtOneCall) {
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
    rows.run();
    EXPECT_EQ(collectives.counts().relayed, 0u);
    if (comm.rank() == 1) {
      is_gate_open = true;
      is_gate_open.notify_all();
      collectives.wait_relays();
    }
    if (comm.rank() == 0) collectives.wait_relays();
    comm.exchange({}, {});
    rows.run();
    EXPECT_GT(collectives.counts().relayed, 0u);
    comm.exchange({}, {});
  });
}

TEST_F(RelaysTest, CannotBeHadOnOneRank_AllGoAsAlone) {
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
    EXPECT_EQ(counts.relayed + counts.pairwise, 0u);
    comm.exchange({}, {});
  });
}

TEST_F(RelaysTest, LostOnOneRank_AllGoAsAloneAgain) {
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
    EXPECT_GT(collectives.counts().relayed, 0u);
    if (comm.rank() == 1) devices_of_last.mark_failed(3, CUDA_ERROR_ECC_UNCORRECTABLE);
    rows.run();
    const std::uint64_t relayed = collectives.counts().relayed;
    rows.run();
    EXPECT_EQ(collectives.counts().relayed, relayed);
    comm.exchange({}, {});
  });
}

TEST_F(RelaysTest, RefusedOnOneRank_NoneUsesThem) {
  Random random(4);
  std::vector<PlannedCall> row(1);
  row.front().what.ranks = 2;
  row.front().what.count = 1 << 20;
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

/// Nothing is left on an idle GPU.
TEST_F(RelaysTest, EndLeavesNoObjects) {
  Random random(12);
  const std::vector<PlannedCall> row = row_of(random, 2, 2);
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
  verdict.take(slow, kWays, 1, now_ns);
  EXPECT_TRUE(verdict.is_suspect());
  EXPECT_FALSE(verdict.is_slow(now_ns)) << "once may be chance";
  verdict.take(alike, kWays, 1, now_ns);
  verdict.take(slow, kWays, 1, now_ns);
  EXPECT_FALSE(verdict.is_slow(now_ns)) << "not in sequence";
  std::uint64_t hold_ns = RelayVerdict::kShortestNs;
  verdict.take(slow, kWays, 1, now_ns);
  for (int turn = 0; turn < 10; ++turn) {
    EXPECT_TRUE(verdict.is_slow(now_ns + hold_ns - 1));
    EXPECT_FALSE(verdict.is_slow(now_ns + hold_ns));
    now_ns += hold_ns;
    hold_ns = std::min(2 * hold_ns, RelayVerdict::kLongestNs);
    verdict.take(slow, kWays, 1, now_ns);
    verdict.take(slow, kWays, 1, now_ns);
  }
  verdict.take(alike, kWays, 1, now_ns += hold_ns);
  verdict.take(slow, kWays, 1, now_ns);
  verdict.take(slow, kWays, 1, now_ns);
  EXPECT_FALSE(verdict.is_slow(now_ns + RelayVerdict::kShortestNs)) << "from the beginning again";
}

/// A link at half of its rate: the channel over it takes twice as long for its bytes, and as long as
/// before for its second hop.
TEST(RelayVerdict, ShorterShares_HideNoLoad) {
  constexpr ChannelWays kWays{2, 2};
  for (const double longer : {1.0, 1.13, 1.27, 1.59}) {
    constexpr std::uint32_t kStraight = 100'000;
    const auto bytes_ns = static_cast<std::uint32_t>(kStraight / longer);
    RelayVerdict verdict;
    for (int i = 0; i < 4; ++i)
      verdict.take(times_of({kStraight, kStraight, kStraight}), kWays, longer, 1);
    EXPECT_FALSE(verdict.is_suspect());
    verdict.take(times_of({kStraight, kStraight, kStraight + bytes_ns}), kWays, longer, 1);
    EXPECT_TRUE(verdict.is_suspect()) << longer;
  }
}

TEST(RelayVerdict, ChannelsWithoutTiles_AreLeftOut) {
  RelayVerdict verdict;
  std::vector<std::uint32_t> words = times_of({100'000, 100'000, 100'000});
  words[4] = 0;
  for (int i = 0; i < 4; ++i) verdict.take(words, {2, 2}, 1, 1);
  EXPECT_FALSE(verdict.is_suspect());
}

TEST(RelayVerdict, ShortCalls_SayNothing) {
  constexpr ChannelWays kWays{2, 2};
  RelayVerdict verdict;
  for (int i = 0; i < 4; ++i) verdict.take(times_of({1'000, 15'000, 15'000}), kWays, 1, 1);
  EXPECT_FALSE(verdict.is_suspect());
  EXPECT_FALSE(verdict.is_slow(1));
}

}  // namespace
}  // namespace polypath::test
