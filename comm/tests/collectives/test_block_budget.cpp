// How the blocks of a GPU are shared out among communicators, with the GPU played by a count of what
// would run there.
#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "collectives/block_budget.hpp"

namespace polypath {
namespace {

CUcontext some_context(int number) {
  return reinterpret_cast<CUcontext>(static_cast<std::uintptr_t>(0x1000 + 16 * number));
}

/// A communicator: a share, and whether a call of it is in flight.
struct Comm {
  explicit Comm(int number, int capacity, int most, int spared)
      : share(some_context(number), capacity, most, spared, [this] { return busy.load(); }) {}

  /// Issues a call that stays in flight.
  unsigned issue(int max_blocks) {
    BlockShare::Use use = share.begin(max_blocks, false);
    busy = true;
    use.done();
    return use.blocks();
  }
  unsigned capture(int max_blocks) {
    BlockShare::Use use = share.begin(max_blocks, true);
    use.done();
    return use.blocks();
  }

  std::atomic<bool> busy{false};
  BlockShare share;
};

TEST(BlockBudget, EveryCommunicator_HasTheMostBlocks) {
  for (const int spared : {0, 32}) {
    std::vector<std::unique_ptr<Comm>> comms;
    for (int i = 0; i < 3; ++i) {
      comms.push_back(std::make_unique<Comm>(1, 132, spared == 0 ? 128 : 64, spared));
      EXPECT_EQ(spared == 0 ? 112 : 48, comms.back()->share.blocks());
      EXPECT_EQ(i == 0, comms.back()->share.is_first());
    }
    for (const auto& comm : comms) {
      EXPECT_EQ(static_cast<unsigned>(comm->share.blocks()), comm->issue(128));
      comm->busy = false;
    }
  }
}

TEST(BlockBudget, CallsInFlight_ShareWhatThereIs) {
  Comm first(2, 132, 64, 32);
  Comm second(2, 132, 64, 32);
  Comm third(2, 132, 64, 32);
  EXPECT_EQ(48U, first.issue(48));
  EXPECT_EQ(24U, second.issue(48));  // of 68 that are not reserved, 44 are taken
  EXPECT_EQ(4U, third.issue(48));
  EXPECT_EQ(16U, first.issue(16));  // it keeps what it has
  EXPECT_EQ(4U, third.issue(48));
  first.busy = false;
  EXPECT_EQ(48U, third.issue(48));
  EXPECT_EQ(4U, first.issue(48));
}

TEST(BlockBudget, CapturedCall_KeepsItsBlocks) {
  auto first = std::make_unique<Comm>(3, 132, 64, 32);
  Comm second(3, 132, 64, 32);
  EXPECT_EQ(48U, first->capture(48));
  EXPECT_EQ(24U, second.issue(48));
  second.busy = false;
  EXPECT_EQ(48U, first->issue(48));
  first->busy = false;
  EXPECT_EQ(24U, second.issue(48));
  first.reset();
  EXPECT_EQ(48U, second.issue(48));
}

TEST(BlockBudget, CallThatFailed_KeepsItsBlocks) {
  Comm first(4, 132, 64, 32);
  Comm second(4, 132, 64, 32);
  {
    const BlockShare::Use use = first.share.begin(48, false);
  }
  EXPECT_EQ(24U, second.issue(48));
}

TEST(BlockBudget, CallThatIsIssued_KeepsItsBlocks) {
  Comm first(5, 132, 64, 32);
  Comm second(5, 132, 64, 32);
  BlockShare::Use use = first.share.begin(48, false);
  EXPECT_EQ(24U, second.issue(48));
  use.done();
}

TEST(BlockBudget, AgreedBlocks_LimitCalls) {
  Comm first(6, 132, 64, 32);
  first.share.keep(20);
  EXPECT_EQ(20U, first.issue(48));
}

/// Until none can be made; each has a call in flight that wants all.
void fill(int number, int capacity, int spared, std::size_t at_least) {
  std::vector<std::unique_ptr<Comm>> comms;
  unsigned blocks = 0;
  try {
    for (;;) {
      comms.push_back(std::make_unique<Comm>(number, capacity, 64, spared));
      blocks += comms.back()->issue(64);
      EXPECT_GE(comms.back()->share.reserved(), 1);
    }
  } catch (const Error&) {
    EXPECT_GE(comms.size(), at_least) << capacity;
  }
  const int kept = spared > 0 ? std::min(spared, capacity / 2) : capacity / 16;
  EXPECT_LE(static_cast<int>(blocks), capacity - kept) << capacity;
}

TEST(BlockBudget, CallsInFlight_LeaveSparedBlocks) {
  fill(7, 132, 32, 8);
  fill(7, 108, 32, 6);
  fill(7, 80, 32, 4);
  fill(7, 40, 32, 2);
  fill(7, 8, 32, 1);
  fill(7, 132, 0, 3);
  fill(7, 40, 0, 1);
  fill(7, 2, 0, 1);
  fill(7, 1, 0, 1);
}

TEST(BlockBudget, FewestBlocksOfAsManyRounds) {
  EXPECT_EQ(48U, blocks_for_channels(48, 48));
  EXPECT_EQ(24U, blocks_for_channels(48, 40));
  EXPECT_EQ(24U, blocks_for_channels(48, 24));
  EXPECT_EQ(12U, blocks_for_channels(48, 12));
  EXPECT_EQ(4U, blocks_for_channels(48, 4));
  EXPECT_EQ(1U, blocks_for_channels(48, 1));
  EXPECT_EQ(5U, blocks_for_channels(10, 7));
}

/// A GPU that runs calls: those in flight of each communicator, and graphs that may be launched at
/// any time. Calls end when the test says so.
class Gpu {
 public:
  explicit Gpu(std::size_t comms) : calls_(comms), graph_(comms) {}

  void begin(std::size_t comm, unsigned blocks) {
    const std::lock_guard lock(mutex_);
    calls_[comm].push_back(blocks);
    note();
  }
  void captured(std::size_t comm, unsigned blocks) {
    const std::lock_guard lock(mutex_);
    graph_[comm] = std::max(graph_[comm], blocks);
    note();
  }
  void end(std::size_t comm) {
    const std::lock_guard lock(mutex_);
    if (!calls_[comm].empty()) calls_[comm].erase(calls_[comm].begin());
  }
  /// Others may go on before the answer is used.
  [[nodiscard]] bool in_flight(std::size_t comm) {
    const bool is_busy = [&] {
      const std::lock_guard lock(mutex_);
      return !calls_[comm].empty();
    }();
    std::this_thread::yield();
    return is_busy;
  }
  /// The most blocks that could have been on the GPU at a time.
  [[nodiscard]] unsigned most() const { return most_; }

 private:
  void note() {
    unsigned blocks = 0;
    for (std::size_t comm = 0; comm < calls_.size(); ++comm) {
      unsigned of_this = graph_[comm];
      for (const unsigned call : calls_[comm]) of_this = std::max(of_this, call);
      blocks += of_this;
    }
    most_ = std::max(most_, blocks);
  }

  std::mutex mutex_;
  std::vector<std::vector<unsigned>> calls_;  // of a communicator, which run one after another
  std::vector<unsigned> graph_;
  unsigned most_ = 0;
};

constexpr std::size_t kComms = 4;
/// 132 blocks without the 32 that are spared, and those reserved for four communicators to come.
constexpr unsigned kLimit = 84;

/// Random calls of communicators, each by a thread of its own; the most blocks that met.
unsigned met_at_random(int context, unsigned seed) {
  Gpu gpu(kComms);
  std::vector<std::thread> threads;
  std::vector<std::unique_ptr<BlockShare>> shares;
  for (std::size_t comm = 0; comm < kComms; ++comm)
    shares.push_back(std::make_unique<BlockShare>(some_context(context), 132, 64, 32,
                                                  [&gpu, comm] { return gpu.in_flight(comm); }));
  for (std::size_t comm = 0; comm < kComms; ++comm)
    threads.emplace_back([&, comm] {
      std::mt19937 random(seed * 10 + static_cast<unsigned>(comm));
      for (int call = 0; call < 500; ++call) {
        const bool is_captured = call > 300 && random() % 100 == 0;
        const int max_blocks = random() % 2 == 0 ? 48 : 1 + static_cast<int>(random() % 48);
        BlockShare::Use use = shares[comm]->begin(max_blocks, is_captured);
        if (random() % 4 == 0) std::this_thread::yield();
        is_captured ? gpu.captured(comm, use.blocks()) : gpu.begin(comm, use.blocks());
        use.done();
        for (unsigned ended = random() % 4; ended > 0; --ended) gpu.end(random() % kComms);
      }
    });
  for (std::thread& thread : threads) thread.join();
  return gpu.most();
}

/// A share is found idle, and begins a call before it has yielded: the blocks of that call and of the
/// one that asked.
unsigned met_in_between(int context) {
  std::unique_ptr<BlockShare> idle;
  std::optional<BlockShare::Use> begun;
  const auto begins_a_call = [&] {
    if (!begun) begun.emplace(idle->begin(48, false));
    return false;
  };
  idle = std::make_unique<BlockShare>(some_context(context), 132, 64, 32, begins_a_call);
  BlockShare other(some_context(context), 132, 64, 32, [] { return true; });
  idle->begin(48, false).done();
  const BlockShare::Use asked = other.begin(48, false);
  return asked.blocks() + (begun ? begun->blocks() : 0);
}

TEST(BlockBudget, CallThatBeginsMeanwhile_KeepsItsBlocks) { EXPECT_LE(met_in_between(10), kLimit); }

TEST(BlockBudget, RandomCalls_AlwaysFit) {
  unsigned most = 0;
  for (unsigned seed = 1; seed <= 6; ++seed) most = std::max(most, met_at_random(8, seed));
  EXPECT_LE(most, kLimit);
  EXPECT_GE(most, kLimit - 8);  // and use what there is
}

#if defined(POLYPATH_MUTANTS)
class BlockMutants : public testing::TestWithParam<BlockFault> {
 protected:
  void TearDown() override { active_mutant<BlockFault> = BlockFault::none; }
};

TEST_P(BlockMutants, LetMoreMeetThanFit) {
  active_mutant<BlockFault> = GetParam();
  unsigned most = met_in_between(11);
  for (unsigned seed = 1; seed <= 400 && most <= kLimit; ++seed)
    most = std::max(most, met_at_random(9, seed));
  EXPECT_GT(most, kLimit);
}

INSTANTIATE_TEST_SUITE_P(All, BlockMutants,
                         testing::Values(BlockFault::busy_share_yields,
                                         BlockFault::issued_share_yields,
                                         BlockFault::lasting_blocks_yield,
                                         BlockFault::pool_without_end,
                                         BlockFault::begun_calls_unseen));
#endif

}  // namespace
}  // namespace polypath
