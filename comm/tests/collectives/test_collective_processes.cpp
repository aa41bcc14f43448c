// Collectives of ranks that are processes: many random calls on several communicators and streams,
// issued one by one or captured, and what the others say when one is killed.
//
// POLYPATH_TEST_CALLS: how many random calls to make (default 240). POLYPATH_TEST_RANKS: by how many
// ranks (default 4).
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <chrono>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "collectives/result_windows.hpp"
#include "core/context.hpp"
#include "driver/check.hpp"
#include "process_group.hpp"
#include "schedule_calls.hpp"
#include "scripted_links.hpp"

namespace polypath::test {
namespace {

using testing::HasSubstr;

/// So that the scratch is small.
constexpr CollectivesOptions kSmall{.max_blocks = 8, .check = false};

constexpr int kCallsOfARow = 12;

int number_of_calls() {
  const char* const requested = std::getenv("POLYPATH_TEST_CALLS");
  return requested == nullptr ? random_rows(20) * kCallsOfARow : std::stoi(requested);
}

/// A communicator with its collectives, the calls of the current row, and how many it has made.
struct Player {
  explicit Player(Communicator& player_comm, const CollectivesOptions& options = kSmall)
      : comm(player_comm), collectives(player_comm, options) {}

  void begin(const CudaDriver& driver) {
    row = std::make_unique<CallRow>(driver, calls, comm.rank());
    next = 0;
  }
  void issue(CUstream stream) {
    collectives.run(row->call(calls, next), stream);
    carried += calls[next].what.count > 0 ? 1 : 0;
    ++next;
  }
  /// All calls of the row at once.
  void capture(const CudaDriver& driver, CUstream stream) {
    graph = std::make_unique<CapturedRow>(driver, stream, [&] {
      while (next < calls.size()) issue(stream);
    });
    ++captured;
  }

  Communicator& comm;
  Collectives collectives;
  std::vector<PlannedCall> calls;
  std::unique_ptr<CallRow> row;
  std::size_t next = 0;
  std::uint64_t carried = 0;
  std::unique_ptr<CapturedRow> graph;  // of the row; null: it is issued call by call
  int captured = 0;                    // rows
};

RANK_PROGRAM(random_calls) {
  const auto all = self.create();
  const auto reversed = all->split(0, -all->rank());
  const auto pair = all->split(all->rank() / 2, 0);
  const CudaDriver& driver = all->driver();
  const CurrentContext current(driver, all->context());
  std::array<Player, 3> players{Player(*all), Player(*reversed), Player(*pair)};
  std::vector<Stream> streams;
  for (int i = 0; i < 3; ++i) streams.emplace_back(driver, all->context());

  Random alike(20261122);  // draws the same on all ranks
  Random own(static_cast<std::uint64_t>(self.rank()));
  std::size_t row = 0;
  for (int issued = 0; issued < number_of_calls() && !testing::Test::HasFailure(); ++row) {
    std::array<std::size_t, kCallsOfARow> order{};
    for (Player& player : players) player.calls.clear();
    for (std::size_t& which : order) {
      which = alike() % players.size();
      players[which].calls.push_back(planned_call(alike, players[which].comm.size(), {0, 3'000}));
    }
    // Large ones, each communicator's first, now and then.
    if (row < players.size() || row % 16 == 0) {
      Player& player = players[row % players.size()];
      // More than cells hold goes by channels.
      constexpr std::uint64_t bytes = 6'000'000;
      if (!player.calls.empty())
        player.calls.front() = planned_call(alike, player.comm.size(), {bytes, bytes + 1'000'000});
    }
    for (Player& player : players) {
      player.begin(driver);
      player.graph = nullptr;
      // The second row in any case: under sanitizers there are few.
      if ((alike() % 4 == 0 || row == 1) && !player.calls.empty())
        player.capture(driver, streams[own() % streams.size()].get());
    }
    std::array<bool, 3> launched{};
    for (const std::size_t which : order) {
      if (own() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 2000));
      const CUstream stream = streams[own() % streams.size()].get();
      if (players[which].graph == nullptr)
        players[which].issue(stream);
      else if (!std::exchange(launched.at(which), true))
        players[which].graph->launch(stream);
      ++issued;
    }
    for (const Stream& stream : streams) POLYPATH_CHECK(driver, stream_synchronize(stream.get()));
    all->check();
    for (const Player& player : players) player.row->expect_done(player.calls);
  }
  for (const Player& player : players) {
    const CollectiveCounts& counts = player.collectives.counts();
    EXPECT_EQ(player.carried, all_calls(counts));
    EXPECT_GT(counts.cells, 0u);
    // By copies without peer access: all of them through host memory.
    EXPECT_GT(counts.lines + counts.channels + counts.host_trees, 0u);
    EXPECT_EQ(0u, counts.copies);
    EXPECT_GT(player.captured, 0);
  }
  all->exchange({}, {});
}
TEST(CollectiveProcesses, RandomCallsOnSeveralCommunicators) {
  NEEDS_GPUS(2);
  const char* const count = std::getenv("POLYPATH_TEST_RANKS");
  const int most = count == nullptr ? 4 : std::atoi(count);
  const int ranks = std::min(most, static_cast<int>(group_node().node.gpus.size()));
  expect_all_well("random_calls", ranks);
}

/// Three communicators whose calls want more blocks than the GPU has for them, each rank in an order
/// of its own: so ranks have other numbers of blocks for a call.
RANK_PROGRAM(calls_on_full_gpus) {
  const CollectivesOptions half_gpu{.max_blocks = 64, .reserved_sms = 1 << 16};
  const auto all = self.create();
  const auto reversed = all->split(0, -all->rank());
  const auto third = all->split(0, all->rank());
  const CudaDriver& driver = all->driver();
  const CurrentContext current(driver, all->context());
  std::array<Player, 3> players{Player(*all, half_gpu), Player(*reversed, half_gpu),
                                Player(*third, half_gpu)};
  std::vector<Stream> streams;
  for (std::size_t i = 0; i < players.size(); ++i) streams.emplace_back(driver, all->context());
  Random alike(45);
  Random own(static_cast<std::uint64_t>(self.rank()));
  for (int turn = 0; turn < random_rows(4) && !testing::Test::HasFailure(); ++turn) {
    std::vector<std::size_t> order;
    for (std::size_t which = 0; which < players.size(); ++which) {
      players.at(which).calls.clear();
      for (int call = 0; call < 3; ++call) {
        const bool is_large = alike() % 2 == 0;
        players.at(which).calls.push_back(planned_call(
            alike, all->size(), is_large ? ByteRange{6'000'000, 7'000'000} : ByteRange{0, 3'000}));
        order.push_back(which);
      }
      players.at(which).begin(driver);
    }
    std::ranges::shuffle(order, own);
    for (const std::size_t which : order) {
      if (own() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 2000));
      players.at(which).issue(streams[which].get());
    }
    for (const Stream& stream : streams) POLYPATH_CHECK(driver, stream_synchronize(stream.get()));
    all->check();
    for (const Player& player : players) player.row->expect_done(player.calls);
  }
  std::uint64_t fewer = 0;
  for (const Player& player : players) fewer += player.collectives.counts().fewer_blocks;
  EXPECT_GT(fewer, 0U);
  all->exchange({}, {});
}
TEST(CollectiveProcesses, CallsOnFullGpus_AllEnd) {
  NEEDS_GPUS(2);
  expect_all_well("calls_on_full_gpus",
                  std::min(4, static_cast<int>(group_node().node.gpus.size())));
}

/// The others wait, and no longer than it takes to come; by then their streams hold calls enough.
RANK_PROGRAM(one_is_late_among_calls) {
  const auto comm = self.create();
  const CudaDriver& driver = comm->driver();
  const CurrentContext current(driver, comm->context());
  Collectives collectives(*comm, kSmall);
  Random random(5);
  std::vector<PlannedCall> calls;
  for (int i = 0; i < 8; ++i)
    calls.push_back(planned_call(random, comm->size(),
                                 i == 6 ? ByteRange{3'000'000, 4'000'000} : ByteRange{0, 3'000}));
  const CallRow row(driver, calls, comm->rank());
  const Stream stream(driver, comm->context());
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (self.rank() == 1 && i % 4 == 2) self.reached("its break");
    collectives.run(row.call(calls, i), stream.get());
    // As many blocks as were taken for it, and no more.
    if (const auto& kernel = collectives.plan(row.call(calls, i)).kernel) {
      EXPECT_LE(kernel->blocks, kSmall.max_blocks);
    }
  }
  POLYPATH_CHECK(driver, stream_synchronize(stream.get()));
  comm->check();
  row.expect_done(calls);
  comm->exchange({}, {});
}
TEST(CollectiveProcesses, LateRank_IsWaitedFor) {
  NEEDS_GPUS(2);
  const int ranks = std::min(3, static_cast<int>(group_node().node.gpus.size()));
  ProcessGroup group("one_is_late_among_calls", ranks);
  for (int breaks = 0; breaks < 2; ++breaks) {
    group.wait_for(1, "its break");
    std::this_thread::sleep_for(std::chrono::seconds(2));
    group.go(1);
  }
  expect_all_well(group, ranks);
}

/// With an engine that makes ready at once what routes to other processes' memory would need.
RANK_PROGRAM(collectives_beside_an_engine) {
  Context engine(self.source(), {{"prepare", "wait"}});
  CommunicatorOptions options = self.options();
  options.engine = &engine;
  const CudaDriver& driver = *self.source().driver;
  Communicator comm(self.source().driver, self.source().node, options);
  const CurrentContext current(driver, comm.context());
  Player player(comm, {.max_blocks = 64, .copies = true});
  Random alike(20261126);
  player.calls = {planned_call(alike, comm.size(), {1'000, 2'000})};
  player.begin(driver);
  const Stream stream(driver, comm.context());
  player.issue(stream.get());
  POLYPATH_CHECK(driver, stream_synchronize(stream.get()));
  player.row->expect_done(player.calls);
  for (int gpu = 0; gpu < static_cast<int>(comm.node().gpus.size()); ++gpu) {
    CUdevice device = 0;
    unsigned flags = 0;
    int is_active = 0;
    POLYPATH_CHECK(driver, device_get(&device, gpu));
    POLYPATH_CHECK(driver, primary_ctx_get_state(device, &flags, &is_active));
    EXPECT_EQ(is_active, gpu == comm.gpu() ? 1 : 0) << "GPU " << gpu << " of rank " << comm.rank();
  }
}
TEST(CollectiveProcesses, TakeNothingOnOtherGpus) {
  expect_all_well("collectives_beside_an_engine", 2);
}

/// Rank 1 stops at the stage POLYPATH_TEST_STAGE, and is killed there; the others go on until they
/// are told.
RANK_PROGRAM(one_is_killed_among_calls) {
  const auto comm = self.create();
  const CudaDriver& driver = comm->driver();
  const CurrentContext current(driver, comm->context());
  self.at("before creation");
  Collectives collectives(*comm, kSmall);
  Random random(3);
  std::vector<PlannedCall> calls;
  for (int i = 0; i < 8; ++i)
    calls.push_back(planned_call(random, comm->size(),
                                 i == 6 ? ByteRange{3'000'000, 4'000'000} : ByteRange{0, 3'000}));
  const CallRow row(driver, calls, comm->rank());
  const Stream stream(driver, comm->context());
  self.at("before the first call");
  for (std::size_t i = 0; i < calls.size(); ++i) {
    collectives.run(row.call(calls, i), stream.get());
    self.at(fmt::format("behind call {}", i));
  }
  POLYPATH_CHECK(driver, stream_synchronize(stream.get()));
  comm->check();
  row.expect_done(calls);
  while (self.ends_at("all done")) {  // rank 1 too, until it is killed
    self.at("all done");
    comm->check();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  comm->exchange({}, {});
}

/// Calls that rank 1 completes, and then it ends its process as most programs do: without
/// destroying anything.
RANK_PROGRAM(one_exits_behind_its_calls) {
  // Kept: the process ends with them.
  static Communicator& comm = *self.create().release();
  static const CurrentContext& current = *new CurrentContext(comm.driver(), comm.context());
  static Collectives& collectives = *new Collectives(comm, kSmall);
  static const Stream& stream = *new Stream(comm.driver(), comm.context());
  static_cast<void>(current);
  Random random(5);
  std::vector<PlannedCall> calls;
  for (int i = 0; i < 4; ++i) calls.push_back(planned_call(random, comm.size(), {1, 2'000}));
  const CallRow row(comm.driver(), calls, comm.rank());
  for (std::size_t i = 0; i < calls.size(); ++i) collectives.run(row.call(calls, i), stream.get());
  POLYPATH_CHECK(comm.driver(), stream_synchronize(stream.get()));
  comm.check();
  row.expect_done(calls);
  if (self.rank() == 1) return;
  self.reached("its end");
  // Time for the watchdog to do the wrong thing.
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    comm.check();
  }
  const CallRow more(comm.driver(), calls, comm.rank());
  try {
    collectives.run(more.call(calls, 0), stream.get());
    POLYPATH_CHECK(comm.driver(), stream_synchronize(stream.get()));
    comm.check();
    ADD_FAILURE() << "a call without rank 1 went well";
  } catch (const CommunicatorError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 1 ended its process before call 5"));
  }
}
TEST(CollectiveProcesses, NormalExit_IsErrorForLaterCallOnly) {
  NEEDS_GPUS(2);
  ProcessGroup group("one_exits_behind_its_calls", 2);
  group.wait_for(0, "its end");
  EXPECT_EQ("", group.result(1));
  group.go(0);
  EXPECT_EQ("", group.result(0));
}

/// An allreduce that may go in two parts.
PlannedCall large_allreduce(Random& random, int ranks) {
  PlannedCall call = planned_call(random, ranks, {100'000, 1'000'000});
  call.what.op = CollectiveOp::allreduce;
  if (call.what.placement == Placement::own_part) call.what.placement = Placement::in_place;
  call.images = images_of(random, call.what);
  return call;
}

/// By kernels, by both and by host memory alone, one after another on several streams; from host
/// memory that another process has written.
RANK_PROGRAM(mixed_calls) {
  const auto comm = self.create();
  const CudaDriver& driver = comm->driver();
  const CurrentContext current(driver, comm->context());
  Collectives collectives(*comm, {.max_blocks = 8, .check = false, .copies = true});
  EXPECT_GT(collectives.host_bytes(), 0u);
  std::vector<Stream> streams;
  for (int i = 0; i < 2; ++i) streams.emplace_back(driver, comm->context());
  Random alike(20261124);
  Random own(static_cast<std::uint64_t>(self.rank()));
  std::array<std::uint64_t, 3> counts_by_way{};
  for (int row = 0; row < random_rows(6) && !testing::Test::HasFailure(); ++row) {
    std::vector<PlannedCall> calls;
    std::vector<std::size_t> ways;
    for (int i = 0; i < 6; ++i) {
      calls.push_back(large_allreduce(alike, comm->size()));
      ways.push_back(alike() % counts_by_way.size());
    }
    const CallRow rank_row(driver, calls, comm->rank());
    constexpr std::array kWays{AlgorithmOverride::host, AlgorithmOverride::kernels,
                               AlgorithmOverride::host_trees};
    for (std::size_t i = 0; i < calls.size(); ++i) {
      if (own() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 2000));
      collectives.run(rank_row.call(calls, i), streams[own() % streams.size()].get(),
                      kWays.at(ways[i]));
      ++counts_by_way.at(ways[i]);
    }
    for (const Stream& stream : streams) POLYPATH_CHECK(driver, stream_synchronize(stream.get()));
    comm->check();
    rank_row.expect_done(calls);
  }
  const CollectiveCounts& counts = collectives.counts();
  EXPECT_EQ(counts_by_way[0], counts.mixed);
  EXPECT_EQ(counts_by_way[1], counts.cells + counts.lines + counts.channels);
  EXPECT_EQ(counts_by_way[2], counts.host_trees);
  comm->exchange({}, {});
}
TEST(CollectiveProcesses, MixedCalls) {
  NEEDS_GPUS(2);
  const int ranks = std::min(4, static_cast<int>(group_node().node.gpus.size()));
  expect_all_well("mixed_calls", ranks);
}

/// Ranks that find load on their host links at different times: which calls are mixed must be alike
/// on all, though they run ahead of each other.
RANK_PROGRAM(mixed_calls_under_load) {
  Node node = self.source().node;
  slow_down_gpu_links(node);
  const auto comm = std::make_unique<Communicator>(self.source().driver, node, self.options());
  const CudaDriver& driver = comm->driver();
  const CurrentContext current(driver, comm->context());
  Random own(static_cast<std::uint64_t>(self.rank()));
  ScriptedLinks links(load_from(static_cast<int>(own() % kLatestFirst)));
  CollectivesOptions options{.max_blocks = 8, .check = false, .copies = true};
  options.host_links = &links;
  Collectives collectives(*comm, options);
  const Stream stream(driver, comm->context());
  Random alike(20261127);
  constexpr int kRows = 6;
  for (int row = 0; row < kRows && !testing::Test::HasFailure(); ++row) {
    std::vector<PlannedCall> calls;
    for (int i = 0; i < kCallsApart; ++i) calls.push_back(mixed_call(alike, comm->size()));
    const CallRow memory(driver, calls, comm->rank());
    for (std::size_t i = 0; i < calls.size(); ++i) {
      if (own() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 2000));
      collectives.run(memory.call(calls, i), stream.get());
    }
    self.at(fmt::format("row {} issued", row));
    POLYPATH_CHECK(driver, stream_synchronize(stream.get()));
    comm->check();
    memory.expect_done(calls);
  }
  const CollectiveCounts& counts = collectives.counts();
  EXPECT_EQ(counts.mixed + counts.changed_by_load, std::uint64_t{kRows * kCallsApart});
  EXPECT_THAT(on_all_ranks(*comm, counts.mixed), testing::Each(counts.mixed));
  EXPECT_GT(counts.mixed, 0u);
  EXPECT_GT(counts.changed_by_load, 0u);
}
TEST(CollectiveProcesses, MixedCallsUnderLoad) {
  NEEDS_GPUS(2);
  ::unsetenv("POLYPATH_TEST_STAGE");  // of a test that ran before
  const int ranks = std::min(4, static_cast<int>(group_node().node.gpus.size()));
  expect_all_well("mixed_calls_under_load", ranks);
}
TEST(CollectiveProcesses, KilledUnderLoad_OthersSaySo) {
  NEEDS_GPUS(3);
  const auto results = results_of_kill("mixed_calls_under_load", 3, "row 2 issued");
  for (const std::size_t rank : {0, 2}) EXPECT_THAT(results[rank], HasSubstr("rank 1")) << rank;
}

/// Other processes address symmetric memory alone.
RANK_PROGRAM(results_go_straight) {
  const auto comm = self.create();
  if (!comm->has_peer_access()) return;
  EXPECT_FALSE(has_direct_results(DirectResultsSetting::automatic, *comm, false));
  const CudaDriver& driver = comm->driver();
  const CurrentContext current(driver, comm->context());
  CollectivesOptions options = kSmall;
  options.direct_results = has_direct_results(DirectResultsSetting::on, *comm, false);
  Collectives collectives(*comm, options);
  const Stream stream(driver, comm->context());
  Random alike(20261128);
  std::vector<PlannedCall> calls(1);
  calls[0].what.ranks = static_cast<std::uint32_t>(comm->size());
  calls[0].what.count = 1'000'000;
  calls[0].images = images_of(alike, calls[0].what);
  const Image& image = calls[0].images[static_cast<std::size_t>(comm->rank())];
  const SymmetricMemory memory = comm->alloc(image.before.size());
  for (int turn = 0; turn < 3; ++turn) {
    const CallRow row(driver, calls, comm->rank());
    POLYPATH_CHECK(driver, memcpy_sync(memory.local(), row.call(calls, 0).send - image.in_at,
                                       image.before.size()));
    POLYPATH_CHECK(driver, stream_synchronize(nullptr));
    const std::uint64_t before = collectives.counts().direct;
    collectives.run(row.call(calls, 0), stream.get(), AlgorithmOverride::uneven);
    EXPECT_EQ(before, collectives.counts().direct);
    collectives.run(call_on(calls[0], comm->rank(), memory.local()), stream.get(),
                    AlgorithmOverride::uneven);
    EXPECT_EQ(before + 1, collectives.counts().direct);
    POLYPATH_CHECK(driver, stream_synchronize(stream.get()));
    comm->check();
    row.expect_done(calls);
    Bytes result(image.before.size());
    POLYPATH_CHECK(driver, memcpy_sync(std::bit_cast<CUdeviceptr>(result.data()), memory.local(),
                                       result.size()));
    EXPECT_EQ("", difference(image, result.data()));
  }
  comm->exchange({}, {});
}
TEST(CollectiveProcesses, SymmetricMemory_TakesDirectResults) {
  NEEDS_GPUS(3);
  expect_all_well("results_go_straight", 3);
}

/// The same as one_is_killed_among_calls, of calls in two parts.
RANK_PROGRAM(one_is_killed_among_mixed_calls) {
  const auto comm = self.create();
  const CudaDriver& driver = comm->driver();
  const CurrentContext current(driver, comm->context());
  Collectives collectives(*comm, {.max_blocks = 8, .check = false, .copies = true});
  Random random(4);
  std::vector<PlannedCall> calls;
  for (int i = 0; i < 4; ++i) calls.push_back(large_allreduce(random, comm->size()));
  const CallRow row(driver, calls, comm->rank());
  const Stream stream(driver, comm->context());
  self.at("before the first call");
  for (std::size_t i = 0; i < calls.size(); ++i) {
    collectives.run(row.call(calls, i), stream.get(), AlgorithmOverride::host);
    self.at(fmt::format("behind call {}", i));
  }
  POLYPATH_CHECK(driver, stream_synchronize(stream.get()));
  comm->check();
  row.expect_done(calls);
  self.at("all done");
  comm->exchange({}, {});
}

class ARankIsKilledAmongMixedCalls : public testing::TestWithParam<const char*> {};
TEST_P(ARankIsKilledAmongMixedCalls, AndAllOthersSaySo) {
  NEEDS_GPUS(3);
  const auto results = results_of_kill("one_is_killed_among_mixed_calls", 3, GetParam());
  for (const std::size_t rank : {0, 2}) EXPECT_THAT(results[rank], HasSubstr("rank 1")) << rank;
}
INSTANTIATE_TEST_SUITE_P(InEveryStage, ARankIsKilledAmongMixedCalls,
                         testing::Values("before the first call", "behind call 0", "behind call 1",
                                         "behind call 3", "all done"),
                         [](const auto& stage) { return as_name(stage.param); });

class ARankIsKilledAmongCalls : public testing::TestWithParam<const char*> {};
TEST_P(ARankIsKilledAmongCalls, AndAllOthersSaySo) {
  NEEDS_GPUS(2);
  const int ranks = std::min(3, static_cast<int>(group_node().node.gpus.size()));
  const auto results = results_of_kill("one_is_killed_among_calls", ranks, GetParam());
  for (std::size_t rank = 0; rank < results.size(); ++rank)
    if (rank != 1) {
      EXPECT_THAT(results[rank], HasSubstr("rank 1")) << rank;
    }
}
INSTANTIATE_TEST_SUITE_P(InEveryStage, ARankIsKilledAmongCalls,
                         testing::Values("before creation", "before the first call",
                                         "behind call 0", "behind call 3", "behind call 6",
                                         "behind call 7", "all done"),
                         [](const auto& stage) { return as_name(stage.param); });

}  // namespace
}  // namespace polypath::test
