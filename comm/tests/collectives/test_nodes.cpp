// Collectives of several nodes: ranks are threads of this process, on GPUs of this node that is
// taken for several; between them messages of this process, or what stands in for NCCL.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>

#include "base/error.hpp"
#include "nccl_standin.h"
#include "node_group.hpp"
#include "norm_rows.hpp"

namespace polypath::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

class Nodes : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const int ranks = static_cast<int>(GetParam().size());
    if (gpus_up_to(ranks) < ranks) GTEST_SKIP() << "needs " << ranks << " GPUs";
  }
};

TEST_P(Nodes, RandomCalls) {
  const std::string& names = GetParam();
  CreatedGroup group(names, {.progress_in_caller = names == "abab", .max_slice = kSmallSlice});
  Random random(20261123);
  std::uint64_t call_count = 0;
  for (int row = 0; row < random_rows(4); ++row) {
    std::vector<PlannedCall> calls;
    for (int i = 0; i < 8; ++i)
      calls.push_back(planned_call(random, static_cast<int>(names.size()),
                                   {0, i == 0 ? 150'000U : 4'000U}, nodes_of(names)));
    run_rows(group, calls);
    for (const PlannedCall& call : calls) call_count += call.what.count > 0 ? 1 : 0;
  }
  for (int rank = 0; rank < static_cast<int>(names.size()); ++rank) {
    EXPECT_EQ(group[rank].across->counts().calls, call_count);
    EXPECT_EQ(group[rank].state.links->engine->sent_bytes(), group.mail().sent_bytes(rank));
    EXPECT_GT(group.mail().sent_bytes(rank), 0U);
  }
}

/// Over all ranks: what a node combines is a node of the tree.
TEST(NodesTest, SumsAreTheTreeOverAllRanks) {
  NEEDS_GPUS(4);
  for (const std::string names : {"aabb", "abcd", "abc"}) {
    CreatedGroup group(names, {.max_slice = kSmallSlice, .order = SumOrder::tree});
    Random random(20261127);
    std::vector<PlannedCall> calls;
    while (calls.size() < 8) {
      PlannedCall call = planned_call(random, static_cast<int>(names.size()),
                                      {0, calls.empty() ? 150'000U : 4'000U}, nodes_of(names));
      if (!combines(call.what.op) || !depends_on_order(call.what.type)) continue;
      call.what.order = SumOrder::tree;
      call.images = images_of(random, call.what);
      calls.push_back(std::move(call));
    }
    run_rows(group, calls);
  }
}

TEST(NodesTest, TreeThatNodesDoNotHave_IsRefused) {
  NEEDS_GPUS(4);
  CreatedGroup group("abab", {.order = SumOrder::tree});
  EXPECT_THAT(group.failures([](NodeRank& rank, int) {
    CallInPlace floats(rank, 100);
    rank.across->run(floats.call, floats.stream.get());
  }),
              Each(HasSubstr("the ranks of a node do not follow one another")));
  Random random(1);
  PlannedCall call{case_of(CollectiveOp::allreduce, DataType::int32, 1000, 4, "abab"), {}};
  call.images = images_of(random, call.what);
  run_rows(group, {call});  // integers have no order, and the communicator stays usable
}

TEST(NodesTest, UnevenPartsAreRefused) {
  NEEDS_GPUS(2);
  CreatedGroup group("ab");
  EXPECT_THAT(group.failures([](NodeRank& rank, int) {
    CallInPlace floats(rank, 100);
    floats.call.op = CollectiveOp::all_gather;
    floats.call.parts = UnevenParts{50, 50};
    rank.across->run(floats.call, floats.stream.get());
  }),
              Each(HasSubstr("of ranks of one node")));
}

TEST_P(Nodes, RowsAreNormalisedAfterTheirSum) {
  const std::string& names = GetParam();
  CreatedGroup group(names, {.progress_in_caller = names == "abab", .max_slice = kSmallSlice});
  Random random(20261127);
  std::vector<PlannedNorm> calls;
  for (int i = 0; i < 5; ++i) {
    NormCase what = random_norm(random, static_cast<std::uint32_t>(names.size()), 1000, 10000, 1);
    what.nodes = nodes_of(names);
    calls.push_back(planned(random, what));
  }
  const auto failures = group.failures([&](NodeRank& rank, int number) {
    const CudaDriver& driver = rank.state.local->driver();
    const Stream stream(driver, rank.state.local->context());
    const NormRow row(driver, calls, number);
    for (std::size_t i = 0; i < calls.size(); ++i)
      rank.across->run(row.call(calls, i), stream.get());
    synchronize(rank, stream.get());
    row.expect_done(calls);
    EXPECT_EQ(calls.size(), rank.inside->counts().norms_apart);
  });
  EXPECT_THAT(failures, Each(""));
}

class NodesOfManyChunks : public Nodes {};
TEST_P(NodesOfManyChunks, GoInTurnByTheSlots) {
  const std::string& names = GetParam();
  const auto ranks = static_cast<std::uint32_t>(names.size());
  CreatedGroup group(names, {.max_slice = kSmallSlice});
  Random random(5);
  for (const CollectiveOp op :
       {CollectiveOp::allreduce, CollectiveOp::reduce, CollectiveOp::broadcast}) {
    PlannedCall call{case_of(op, DataType::float32, 100'003, ranks, names), {}};
    call.images = images_of(random, call.what);
    const std::uint64_t before = group[0].across->counts().chunks;
    run_rows(group, {call});
    EXPECT_GE(group[0].across->counts().chunks - before, 4U) << call.what.text();
  }
}

INSTANTIATE_TEST_SUITE_P(Of, Nodes, testing::Values("aabb", "abab", "abcd", "abba", "abcdefghi"),
                         [](const auto& names) { return names.param; });

INSTANTIATE_TEST_SUITE_P(Of, NodesOfManyChunks, testing::Values("aabb", "abcd", "abcdefghi"),
                         [](const auto& names) { return names.param; });

constexpr std::uint64_t kHeaderBytes = 16;  // of a message

TEST(NodesTest, RankSendsOnlyItsSlice) {
  NEEDS_GPUS(4);
  for (const std::string names : {"aabb", "abcd"}) {
    CreatedGroup group(names);
    constexpr std::uint64_t kCount = 1 << 17;
    Random random(1);
    PlannedCall call{case_of(CollectiveOp::allreduce, DataType::int32, kCount, 4, names), {}};
    call.images = images_of(random, call.what);
    run_rows(group, {call});
    const std::uint64_t nodes = nodes_of(names).size();
    const std::uint64_t slice = 4 * kCount / (4 / nodes);
    for (int rank = 0; rank < 4; ++rank)
      EXPECT_EQ(group.mail().sent_bytes(rank), 2 * (nodes - 1) * (slice / nodes + kHeaderBytes));
  }
}

TEST(NodesTest, RanksOfOneNodeNeedNoNetwork) {
  NEEDS_GPUS(4);
  CreatedGroup group("aaaa");
  EXPECT_EQ(group[3].state.links, nullptr);
  EXPECT_EQ(group[3].state.local->size(), 4);
  EXPECT_EQ(group.mail().open(), 0);
}

TEST(NodesTest, NetworkEndsWithItsRanks) {
  NEEDS_GPUS(2);
  CreatedGroup group("ab");
  EXPECT_EQ(group.mail().open(), 2);
  group.destroy(0);
  EXPECT_EQ(group.mail().open(), 1);
}

TEST(NodesTest, UnequalNodesAreRefusedOnAllRanks) {
  NEEDS_GPUS(3);
  EXPECT_THAT(NodeGroup("aab").failures_of_creation(),
              Each(AllOf(HasSubstr("the node of rank 0 has 2 ranks, that of rank 2 has 1"),
                         HasSubstr("start equally many on each"))));
}

/// What `spoil` does to one rank's creation, all ranks are told.
void expect_refused(
    const std::function<void(CommunicatorOptions&, polypath_network&, std::string&)>& spoil,
    const char* reason) {
  Mail mail;
  const auto exchanges = thread_exchanges(4, std::chrono::minutes(5));
  const auto failures = failures_on_threads(4, [&](int rank) {
    CommunicatorOptions rank_options;
    rank_options.rank = rank;
    rank_options.size = 4;
    rank_options.gpu = rank;
    rank_options.exchange = exchanges[static_cast<std::size_t>(rank)];
    polypath_network network = mail.network(rank, false);
    std::string name = rank < 2 ? "a" : "b";
    if (rank == 3) spoil(rank_options, network, name);
    const NodeSource& source = group_node();
    const MultiNodeRank state =
        create_across_nodes(source.driver, source.node, rank_options, network, name);
  });
  EXPECT_THAT(failures, Each(HasSubstr(reason)));
}
TEST(NodesTest, CreationErrorOfOneRank_ReachesAll) {
  NEEDS_GPUS(4);
  expect_refused([](auto& options, auto&, auto&) { options.gpu = 99; }, "gpu99 is none");
  expect_refused([](auto& options, auto&, auto&) { options.gpu = 2; }, "have the same GPU");
  expect_refused([](auto&, auto&, auto& name) { name = std::string(80, 'x'); }, "is longer than");
  expect_refused([](auto&, auto& network, auto&) { network.test = nullptr; }, "lacks a function");
  expect_refused([](auto&, auto& network, auto&) { network.begin = [](void*) { return 1; }; },
                 "could not begin");
}

TEST(NodesTest, WrongArgument_SendsNothing) {
  NEEDS_GPUS(2);
  CreatedGroup group("ab");
  const auto failures = group.failures([&](NodeRank& rank, int) {
    const CudaDriver& driver = rank.state.local->driver();
    const DeviceBytes memory(driver, 4096);
    const Stream stream(driver, rank.state.local->context());
    CollectiveCall call;
    call.count = 2000;
    call.send = call.recv = memory.address();
    rank.across->run(call, stream.get());
  });
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_THAT(failures[static_cast<std::size_t>(rank)],
                HasSubstr(fmt::format("rank {}: send has 4096 bytes to its end", rank)));
  EXPECT_TRUE(group[0].state.local->aborted());  // others would wait for the call
  EXPECT_EQ(group.mail().sent_bytes(0), 0U);
}

TEST(NodesTest, MessageOfOneMiB_IsOneChunk) {
  NEEDS_GPUS(4);
  for (const std::string names : {"aabb", "abcd"}) {
    CreatedGroup group(names);
    Random random(3);
    PlannedCall call{case_of(CollectiveOp::allreduce, DataType::float32, 1 << 18, 4, names), {}};
    call.images = images_of(random, call.what);
    run_rows(group, {call});
    EXPECT_EQ(group[0].across->counts().chunks, 1U);
  }
}

/// A call of all ranks after `spoil`; what each throws.
std::vector<std::string> failures_after(NodeGroup& group, const std::string& names,
                                        const std::function<void(Mail&)>& spoil) {
  const auto ranks = static_cast<std::uint32_t>(names.size());
  Random random(2);
  std::vector<PlannedCall> calls;
  for (int i = 0; i < 3; ++i) {
    calls.push_back({case_of(CollectiveOp::allreduce, DataType::int32, 1000, ranks, names), {}});
    calls.back().images = images_of(random, calls.back().what);
  }
  spoil(group.mail());
  std::barrier ready(static_cast<std::ptrdiff_t>(names.size()));
  return group.failures([&](NodeRank& rank, int number) {
    const CudaDriver& driver = rank.state.local->driver();
    const CallRow row(driver, calls, number);
    const Stream stream(driver, rank.state.local->context());
    ready.arrive_and_wait();
    try {
      for (std::size_t i = 0; i < calls.size(); ++i)
        rank.across->run(row.call(calls, i), stream.get());
    } catch (const CommunicatorError&) {
      POLYPATH_CHECK(driver, stream_synchronize(stream.get()));
      throw;
    }
    synchronize(rank, stream.get());
  });
}

TEST(NodesTest, CallRunsAfterEarlierStreamWork) {
  NEEDS_GPUS(2);
  CreatedGroup group("ab");
  Random random(9);
  PlannedCall call{case_of(CollectiveOp::allreduce, DataType::float32, 100'000, 2, "ab"), {}};
  call.images = images_of(random, call.what);
  const auto failures = group.failures([&](NodeRank& rank, int number) {
    const CudaDriver& driver = rank.state.local->driver();
    const std::vector calls{call};
    const CallRow row(driver, calls, number);
    const CollectiveCall rank_call = row.call(calls, 0);
    const std::uint64_t bytes = call.what.in_bytes();
    const DeviceBytes input(driver, bytes);
    const Stream stream(driver, rank.state.local->context());
    // The bytes to send come by the stream, many times over.
    POLYPATH_CHECK(driver, memcpy_async(input.address(), rank_call.send, bytes, stream.get()));
    for (int i = 0; i < 20; ++i)
      POLYPATH_CHECK(driver, memset_d8_async(rank_call.send, 0xEE, bytes, stream.get()));
    POLYPATH_CHECK(driver, memcpy_async(rank_call.send, input.address(), bytes, stream.get()));
    rank.across->run(rank_call, stream.get());
    synchronize(rank, stream.get());
    row.expect_done(calls);
  });
  EXPECT_THAT(failures, Each(""));
}

TEST(NodesTest, TimedOutRank_SendsNothing) {
  NEEDS_GPUS(4);
  CreatedGroup group("aabb", {.time_limit = kSoon});
  const auto failures = group.failures([&](NodeRank& rank, int number) {
    if (number == 1) return;  // rank 0 waits for it
    const CallInPlace in_place(rank, 1000);
    rank.across->run(in_place.call, in_place.stream.get());
    try {
      synchronize(rank, in_place.stream.get());
    } catch (const CommunicatorError&) {
      POLYPATH_CHECK(rank.state.local->driver(), stream_synchronize(in_place.stream.get()));
      throw;
    }
  });
  EXPECT_THAT(failures[0], HasSubstr("node 0: the communicator is unusable: rank 0: kernel 1"));
  EXPECT_THAT(failures[2], HasSubstr("node 1: the communicator is unusable"));
  EXPECT_THAT(failures[3], HasSubstr("node 1: the communicator is unusable"));
  EXPECT_EQ(group.mail().sent_bytes(0), 0U);
}

TEST(NodesTest, SilentNode_EndsCallsWithinTimeout) {
  NEEDS_GPUS(4);
  for (const bool progress_in_caller : {false, true}) {
    const NodeGroupOptions options{kSoon, progress_in_caller};
    const auto lose = [](Mail& mail) { mail.lose_those_of(1); };
    CreatedGroup pair("ab", options);
    const auto of_pair = failures_after(pair, "ab", lose);
    EXPECT_THAT(of_pair[0],
                HasSubstr("rank 0: exchange 1 with other nodes did not end within 2000"));
    EXPECT_THAT(of_pair[1],
                HasSubstr("rank 1: exchange 2 with other nodes did not end within 2000"));
    // Here others of a node wait for the one that waits for the network.
    CreatedGroup four("aabb", options);
    EXPECT_THAT(failures_after(four, "aabb", lose), Each(HasSubstr("unusable")));
  }
}

TEST(NodesTest, NetworkFailure_IsReported) {
  NEEDS_GPUS(4);
  CreatedGroup group("aabb", {kSoon, false});
  const auto failures = failures_after(group, "aabb", [](Mail& mail) { mail.refuse_those_of(1); });
  EXPECT_THAT(
      failures[0],
      HasSubstr("node 0: the communicator is unusable: rank 1: no message can be sent to rank 3"));
  EXPECT_EQ(failures[0], failures[1]);
  EXPECT_THAT(failures[2], HasSubstr("node 1: the communicator is unusable"));
  EXPECT_THAT(failures[3], HasSubstr("node 1: the communicator is unusable"));
}

/// NCCL's stand-in, without faults.
class ByNccl : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    NEEDS_GPUS(4);
    if (!group_node().simulated) GTEST_SKIP() << "node_ranks tries NCCL itself";
    nccl_standin_reset();
  }
  void TearDown() override { nccl_standin_reset(); }
};

TEST_P(ByNccl, RandomCalls) {
  const std::string& names = GetParam();
  CreatedGroup group(names, {.by_nccl = true, .max_slice = kSmallSlice});
  EXPECT_EQ(group[0].state.links->engine->name(), "nccl");
  Random random(77);
  std::vector<PlannedCall> calls;
  for (int i = 0; i < 12; ++i)
    calls.push_back(planned_call(random, static_cast<int>(names.size()),
                                 {0, i == 0 ? 400'000U : 4'000U}, nodes_of(names)));
  run_rows(group, calls);
  EXPECT_GT(group[0].state.links->engine->sent_bytes(), 0U);
  EXPECT_EQ(group.mail().open(), 0);
}
INSTANTIATE_TEST_SUITE_P(Of, ByNccl, testing::Values("aabb", "abab", "abcd"),
                         [](const auto& names) { return names.param; });

std::atomic<bool> host_is_blind{false};

/// No thread of the host sees a stream come anywhere, so none can let it go on.
TEST(NodesTest, ExchangeByNccl_NeedsNoHost) {
  NEEDS_GPUS(2);
  if (!group_node().simulated) GTEST_SKIP() << "node_ranks tries NCCL itself";
  nccl_standin_reset();
  static const CudaDriver& real = *group_node().driver;
  const auto driver = std::make_shared<CudaDriver>(real);
  driver->event_query = [](CUevent event) {
    return host_is_blind ? CUDA_ERROR_NOT_READY : real.event_query(event);
  };
  CreatedGroup group("ab", {.time_limit = std::chrono::seconds(10),
                            .by_nccl = true,
                            .max_slice = kSmallSlice,
                            .driver = driver});
  Random random(8);
  PlannedCall call{case_of(CollectiveOp::allreduce, DataType::float32, 100'003, 2, "ab"), {}};
  call.images = images_of(random, call.what);
  host_is_blind = true;
  run_rows(group, {call});
  host_is_blind = false;
  EXPECT_GE(group[0].across->counts().chunks, 4U);
}

class ByNcclFails : public ByNccl {};
TEST_P(ByNcclFails, AndAllCallsEndWithinTheTimeLimit) {
  const std::string& names = GetParam();
  CreatedGroup group(names, {.time_limit = kSoon, .by_nccl = true});
  const auto failures = failures_after(group, names, [](Mail&) { nccl_standin_lose_those_of(1); });
  EXPECT_THAT(failures, Each(HasSubstr("unusable")));
  if (names == "ab") {
    EXPECT_THAT(failures[0],
                HasSubstr("rank 0: exchange 1 with other nodes did not end within 2000"));
  }
}
TEST_P(ByNcclFails, NodeTimedOut_GivesNoResult) {
  const std::string& names = GetParam();
  CreatedGroup group(names, {.time_limit = kSoon, .by_nccl = true});
  const auto failures = failures_after(group, names, [](Mail&) { nccl_standin_gives_up(1); });
  EXPECT_THAT(failures[0], HasSubstr("node 1 gave up its part of a collective"));
  EXPECT_THAT(failures, Each(HasSubstr("unusable")));
}
INSTANTIATE_TEST_SUITE_P(Of, ByNcclFails, testing::Values("ab", "aabb"),
                         [](const auto& names) { return names.param; });

std::atomic<Communicator*> aborted_meanwhile{nullptr};

/// Another rank of the node aborts between NCCL's call and the kernel after it.
TEST(NodesTest, AbortWhileNcclIsIssued_EndsItsStream) {
  NEEDS_GPUS(2);
  if (!group_node().simulated) GTEST_SKIP() << "node_ranks tries NCCL itself";
  nccl_standin_reset();
  CreatedGroup group("ab", {.by_nccl = true});
  Communicator& local = *group[0].state.local;
  aborted_meanwhile = &local;
  nccl_standin_after_groups([](int) { aborted_meanwhile.load()->abort("planted"); });
  const auto failures = group.failures([&](NodeRank& rank, int number) {
    if (number == 1) return;  // rank 0 receives nothing
    const CallInPlace call(rank, 1000);
    EXPECT_THROW(rank.across->run(call.call, call.stream.get()), CommunicatorError);
    POLYPATH_CHECK(rank.state.local->driver(), stream_synchronize(call.stream.get()));
    rank.state.local->check();
  });
  nccl_standin_reset();
  EXPECT_THAT(failures[0], HasSubstr("planted"));
}

TEST(NodesTest, CapturesAreRefused) {
  NEEDS_GPUS(2);
  CreatedGroup group("ab");
  const auto failures = group.failures([&](NodeRank& rank, int) {
    const CudaDriver& driver = rank.state.local->driver();
    const CallInPlace in_place(rank, 10);
    const CUstream stream = in_place.stream.get();
    POLYPATH_CHECK(driver, stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    EXPECT_THROW(rank.across->run(in_place.call, stream), InvalidArgument);
    CUgraph graph = nullptr;
    POLYPATH_CHECK(driver, stream_end_capture(stream, &graph));
    POLYPATH_CHECK(driver, graph_destroy(graph));
  });
  EXPECT_THAT(failures, Each(""));
}

}  // namespace
}  // namespace polypath::test
