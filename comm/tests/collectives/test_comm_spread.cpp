// Spreads of a communicator, over ranks that are threads: every byte on every rank, from host
// memory that all have, and from one rank.
#include "collectives/comm_spread.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <thread>

#include "base/units.hpp"
#include "core/context.hpp"
#include "driver/check.hpp"
#include "driver/fault_injection.hpp"
#include "group.hpp"
#include "tune/pattern.hpp"
#include "tune/test_buffer.hpp"

namespace polypath::test {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

int ranks() { return gpus_up_to(4); }
constexpr CollectivesOptions kFewBlocks{.max_blocks = 16, .check = false};
constexpr std::uint64_t kBytes = 9 * kMiB + 777;

class CommSpreadTest : public testing::Test {
 protected:
  void SetUp() override {
    NEEDS_GPUS(2);
    context_ = std::make_unique<Context>(group_node(), OptionArguments{});
    group_.emplace(ranks(), GroupOptions{.engine = context_.get()});
  }

  /// What a rank's test has.
  struct Rank {
    Rank(Communicator& communicator, Context& context)
        : comm(communicator),
          collectives(communicator, kFewBlocks),
          spread(collectives, context),
          stream(communicator.driver(), communicator.context()) {}
    /// Kernels of a call that failed later may still use the buffers.
    ~Rank() { static_cast<void>(comm.driver().stream_synchronize(stream.get())); }
    Rank(const Rank&) = delete;
    Rank& operator=(const Rank&) = delete;

    void synchronize() const {
      POLYPATH_CHECK(comm.driver(), stream_synchronize(stream.get()));
      comm.check();
    }
    TestBuffer& buffer(std::uint64_t bytes) {
      return buffers.emplace_back(comm.driver(), group_node().node, MemoryId::gpu(comm.gpu()),
                                  bytes);
    }
    /// The first bytes are the pattern's, and those after it the poison.
    testing::AssertionResult has(const TestBuffer& buffer, std::uint64_t bytes,
                                 std::uint64_t seed) const {
      std::vector<std::byte> there(buffer.size());
      POLYPATH_CHECK(comm.driver(), memcpy_async(reinterpret_cast<CUdeviceptr>(there.data()),
                                                 buffer.address(), there.size(), stream.get()));
      POLYPATH_CHECK(comm.driver(), stream_synchronize(stream.get()));
      const auto wrong = polypath::first_difference(std::span(there).first(bytes), seed);
      if (wrong) return testing::AssertionFailure() << "byte " << *wrong << " is wrong";
      const auto rest = std::span(there).subspan(bytes);
      if (!std::ranges::all_of(rest, [](std::byte byte) { return byte == std::byte{0xA5}; }))
        return testing::AssertionFailure() << "bytes after the end were written";
      return testing::AssertionSuccess();
    }

    Communicator& comm;
    std::deque<TestBuffer> buffers;
    Collectives collectives;
    CommSpread spread;
    Stream stream;
  };
  void run(const std::function<void(Rank&)>& body) {
    group_->run([&](Communicator& comm) {
      Rank rank(comm, *context_);
      body(rank);
      comm.exchange({}, {});
    });
  }
  static TestBuffer host(std::uint64_t bytes, bool is_pageable = false) {
    return {*group_node().driver, group_node().node, MemoryId::host(0), bytes, is_pageable};
  }

  std::unique_ptr<Context> context_;
  std::optional<Group> group_;
};

TEST_F(CommSpreadTest, SharedMemory_ReachesAllRanks) {
  for (const std::uint64_t bytes : {kBytes, 12 * kMiB, 37 * kMiB + 4095}) {
    TestBuffer source = host(bytes);
    source.fill(bytes);
    run([&](Rank& rank) {
      TestBuffer& there = rank.buffer(bytes + 64);
      there.poison();
      rank.spread.run({source.address(), there.address(), bytes, kSharedSource}, rank.stream.get());
      rank.synchronize();
      EXPECT_TRUE(rank.has(there, bytes, bytes));
      EXPECT_EQ(rank.spread.counts().native, 0u);
      EXPECT_GE(rank.spread.counts().pieces, 4u);
    });
  }
}

TEST_F(CommSpreadTest, SmallMemory_IsCopiedByEachRank) {
  for (const std::uint64_t bytes : {std::uint64_t{1}, 4 * kKiB, 256 * kKiB + 3}) {
    TestBuffer source = host(bytes);
    source.fill(3);
    run([&](Rank& rank) {
      TestBuffer& there = rank.buffer(bytes + 64);
      there.poison();
      rank.spread.run({source.address(), there.address(), bytes, kSharedSource}, rank.stream.get());
      rank.spread.run({source.address(), there.address(), 0, kSharedSource}, rank.stream.get());
      rank.synchronize();
      EXPECT_TRUE(rank.has(there, bytes, 3));
      EXPECT_EQ(rank.spread.counts().native, 1u);
      EXPECT_EQ(rank.spread.counts().pieces, 0u);
    });
  }
}

TEST_F(CommSpreadTest, PageableMemory_ReachesAllRanks) {
  TestBuffer source = host(kBytes, true);
  source.fill(4);
  run([&](Rank& rank) {
    TestBuffer& there = rank.buffer(kBytes + 64);
    there.poison();
    rank.spread.run({source.address(), there.address(), kBytes, kSharedSource}, rank.stream.get());
    rank.synchronize();
    EXPECT_TRUE(rank.has(there, kBytes, 4));
    EXPECT_GT(rank.spread.counts().pieces, 0u);
  });
}

TEST_F(CommSpreadTest, EachRoot_ReachesAllRanks) {
  enum class Kind : std::uint8_t { host, own_gpu, in_place };
  for (const Kind kind : {Kind::host, Kind::own_gpu, Kind::in_place}) {
    for (int root = 0; root < ranks(); ++root) {
      const auto seed = static_cast<std::uint64_t>(10 * root) + static_cast<unsigned>(kind);
      TestBuffer source = host(kBytes);
      source.fill(seed);
      run([&](Rank& rank) {
        TestBuffer& own = rank.buffer(kBytes);
        TestBuffer& there = rank.buffer(kBytes + 64);
        own.fill(seed);
        there.poison();
        CUdeviceptr src = 0;
        if (rank.comm.rank() == root) {
          src = kind == Kind::host ? source.address() : own.address();
          if (kind == Kind::in_place) {
            src = there.address();
            POLYPATH_CHECK(rank.comm.driver(),
                           memcpy_async(src, own.address(), kBytes, rank.stream.get()));
          }
        }
        rank.spread.run({src, there.address(), kBytes, root}, rank.stream.get());
        rank.synchronize();
        EXPECT_TRUE(rank.has(there, kBytes, seed)) << root;
        EXPECT_EQ(rank.spread.counts().pieces, 1u);
      });
    }
  }
}

TEST_F(CommSpreadTest, RowsOfSkewedCalls_KeepTheirOrder) {
  constexpr std::uint64_t kCalls = 5;
  std::vector<std::unique_ptr<TestBuffer>> sources;
  for (std::uint64_t i = 0; i < kCalls; ++i) {
    sources.push_back(std::make_unique<TestBuffer>(*group_node().driver, group_node().node,
                                                   MemoryId::host(0), kBytes));
    sources.back()->fill(100 + i);
  }
  run([&](Rank& rank) {
    TestBuffer& there = rank.buffer(kBytes);
    TestBuffer& scratch = rank.buffer(32 * kMiB);
    std::vector<std::unique_ptr<TestBuffer>> copies;
    for (std::uint64_t i = 0; i < kCalls; ++i) {
      copies.push_back(std::make_unique<TestBuffer>(rank.comm.driver(), group_node().node,
                                                    MemoryId::gpu(rank.comm.gpu()), kBytes + 64));
      copies.back()->poison();
    }
    for (std::uint64_t i = 0; i < kCalls; ++i) {
      // Another rank comes late to each.
      if (static_cast<std::uint64_t>(rank.comm.rank()) == i % static_cast<unsigned>(ranks()))
        POLYPATH_CHECK(rank.comm.driver(),
                       memset_d8_async(scratch.address(), 1, scratch.size(), rank.stream.get()));
      POLYPATH_CHECK(rank.comm.driver(),
                     memset_d8_async(there.address(), 0x77, kBytes, rank.stream.get()));
      rank.spread.run({sources[i]->address(), there.address(), kBytes, kSharedSource},
                      rank.stream.get());
      POLYPATH_CHECK(rank.comm.driver(), memcpy_async(copies[i]->address(), there.address(), kBytes,
                                                      rank.stream.get()));
    }
    rank.synchronize();
    for (std::uint64_t i = 0; i < kCalls; ++i)
      EXPECT_TRUE(rank.has(*copies[i], kBytes, 100 + i)) << i;
    EXPECT_EQ(rank.spread.counts().calls, kCalls);
  });
}

TEST_F(CommSpreadTest, CapturedCall_ReadsAnewAtEachLaunch) {
  TestBuffer source = host(kBytes);
  source.fill(1);
  run([&](Rank& rank) {
    const CudaDriver& driver = rank.comm.driver();
    if (driver.stream_begin_capture == nullptr) return;
    TestBuffer& there = rank.buffer(kBytes + 64);
    there.poison();
    POLYPATH_CHECK(driver,
                   stream_begin_capture(rank.stream.get(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    rank.spread.run({source.address(), there.address(), kBytes, kSharedSource}, rank.stream.get());
    CUgraph graph = nullptr;
    POLYPATH_CHECK(driver, stream_end_capture(rank.stream.get(), &graph));
    CUgraphExec exec = nullptr;
    POLYPATH_CHECK(driver, graph_instantiate(&exec, graph, 0));
    for (const std::uint64_t seed : {1, 2}) {
      rank.comm.exchange({}, {});
      if (rank.comm.rank() == 0) source.fill(seed);
      rank.comm.exchange({}, {});
      POLYPATH_CHECK(driver, graph_launch(exec, rank.stream.get()));
      rank.synchronize();
      EXPECT_TRUE(rank.has(there, kBytes, seed));
      rank.comm.exchange({}, {});
    }
    POLYPATH_CHECK(driver, graph_exec_destroy(exec));
    POLYPATH_CHECK(driver, graph_destroy(graph));
  });
}

TEST_F(CommSpreadTest, WrongRoot_IssuesNothing) {
  run([&](Rank& rank) {
    TestBuffer& there = rank.buffer(64);
    EXPECT_THROW(rank.spread.run({0, there.address(), 64, ranks()}, rank.stream.get()),
                 InvalidArgument);
    EXPECT_THROW(rank.spread.run({0, there.address(), 64, -2}, rank.stream.get()), InvalidArgument);
    rank.comm.check();
  });
}

TEST_F(CommSpreadTest, WrongBufferOfOneRank_EndsAll) {
  TestBuffer source = host(kBytes);
  source.fill(1);
  const auto failures = group_->failures([&](Communicator& comm) {
    Rank rank(comm, *context_);
    TestBuffer& there = rank.buffer(kBytes);
    const bool is_wrong = comm.rank() == comm.size() - 1;
    rank.spread.run(
        {source.address(), is_wrong ? source.address() : there.address(), kBytes, kSharedSource},
        rank.stream.get());
    rank.synchronize();
  });
  EXPECT_THAT(failures, Each(testing::Not(IsEmpty())));
  EXPECT_THAT(failures.back(), HasSubstr("recv is no memory of the rank's GPU"));
}

TEST_F(CommSpreadTest, UnlikeSizes_EndAll) {
  TestBuffer source = host(2 * kBytes);
  source.fill(1);
  const auto failures = group_->failures([&](Communicator& comm) {
    Rank rank(comm, *context_);
    TestBuffer& there = rank.buffer(2 * kBytes);
    const std::uint64_t bytes = comm.rank() == 1 ? kBytes + kMiB : kBytes;
    rank.spread.run({source.address(), there.address(), bytes, kSharedSource}, rank.stream.get());
    rank.synchronize();
  });
  EXPECT_THAT(failures, Each(testing::Not(IsEmpty())));
}

TEST_F(CommSpreadTest, FailedCallOfOneRank_EndsAll) {
  TestBuffer source = host(kBytes);
  source.fill(1);
  group_.reset();
  context_.reset();
  FaultInjector faults(group_node().driver);
  NodeSource faulty = group_node();
  faulty.driver = faults.driver();
  context_ = std::make_unique<Context>(faulty, OptionArguments{});
  for (const char* const call : {"cuMemcpyAsync", "cuEventRecord", "cuStreamWaitEvent"}) {
    SCOPED_TRACE(call);
    group_.emplace(ranks(), GroupOptions{.driver = faults.driver(), .engine = context_.get()});
    const auto failures = group_->failures([&](Communicator& comm) {
      Rank rank(comm, *context_);
      TestBuffer& there = rank.buffer(kBytes);
      comm.exchange({}, {});
      if (comm.rank() == 0) faults.fail(call, 2, CUDA_ERROR_OUT_OF_MEMORY);
      comm.exchange({}, {});
      rank.spread.run({source.address(), there.address(), kBytes, kSharedSource},
                      rank.stream.get());
      rank.synchronize();
    });
    EXPECT_THAT(failures, Each(testing::Not(IsEmpty())));
    EXPECT_EQ(faults.last_failed(), call);
    faults.clear();
    group_.reset();
  }
  context_.reset();
}

}  // namespace
}  // namespace polypath::test
