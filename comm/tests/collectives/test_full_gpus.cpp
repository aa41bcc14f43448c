// Calls of several communicators in flight on GPUs that run only as many blocks as communicators may
// have together: they end in any order of their starts. With a defect of the share of blocks some do
// not, since kernels wait for room that others hold.
#include <gtest/gtest.h>

#include <array>
#include <memory>

#include "collectives/block_budget.hpp"
#include "collectives/kernels/mutants.h"
#include "host_kernel_ranks.hpp"

namespace polypath::test {
namespace {

constexpr std::uint32_t kRanks = 3;
constexpr int kCommunicators = 3;
constexpr int kBlocks = 12;  // that a GPU runs at once

/// On each GPU the communicators' calls are issued in another order, so that they have other
/// numbers of blocks there. All are in flight.
std::string run_all(std::uint64_t seed) {
  Random random(seed);
  std::vector<std::vector<CollectiveCase>> rows(kCommunicators);
  for (auto& row : rows) {
    CollectiveCase& what = row.emplace_back();
    what.ranks = kRanks;
    what.count = 2000;
    what.tile_bytes = 256;
    what.blocks = 8;
    what.rank_blocks.resize(kRanks);
  }
  for (std::uint32_t gpu = 0; gpu < kRanks; ++gpu) {
    std::vector<std::unique_ptr<BlockShare>> shares;
    const auto context = reinterpret_cast<CUcontext>(std::uintptr_t{0x9000 + gpu});
    for (int comm = 0; comm < kCommunicators; ++comm)
      shares.push_back(std::make_unique<BlockShare>(context, kBlocks, 8, 0, [] { return true; }));
    for (std::uint32_t turn = 0; turn < kCommunicators; ++turn) {
      const std::size_t comm = (turn + gpu) % kCommunicators;
      BlockShare::Use use = shares[comm]->begin(8, false);
      rows[comm].front().rank_blocks[gpu] = use.blocks();
      use.done();
    }
  }
  std::vector<std::unique_ptr<HostKernelRanks>> ranks;
  std::vector<HostKernelRanks*> communicators;
  for (int comm = 0; comm < kCommunicators; ++comm) {
    ranks.push_back(std::make_unique<HostKernelRanks>(ScratchShape{kRanks, 8, 4, 512, 8 * 1024}));
    communicators.push_back(ranks.back().get());
  }
  return HostKernelRanks::run_together(communicators, rows, kBlocks, seed);
}

class FullGpus : public testing::Test {
 protected:
  void TearDown() override {
    active_mutant<BlockFault> = BlockFault::none;
    active_mutant<Fault> = Fault::none;
  }
  /// How many of ten runs fail.
  static int failures() {
    int failed = 0;
    for (std::uint64_t seed = 1; seed <= 10; ++seed) failed += run_all(seed).empty() ? 0 : 1;
    return failed;
  }
};

TEST_F(FullGpus, CallsInFlight_AllEnd) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) EXPECT_EQ("", run_all(seed));
}
TEST_F(FullGpus, PoolWithoutEnd_IsFound) {
  active_mutant<BlockFault> = BlockFault::pool_without_end;
  EXPECT_NE(0, failures());
}
TEST_F(FullGpus, BusyShareYields_IsFound) {
  active_mutant<BlockFault> = BlockFault::busy_share_yields;
  EXPECT_NE(0, failures());
}
TEST_F(FullGpus, ChannelsByRank_IsFound) {
  active_mutant<Fault> = Fault::channels_by_rank;
  EXPECT_NE(0, failures());
}
TEST_F(FullGpus, BlocksForChannels_IsFound) {
  active_mutant<Fault> = Fault::blocks_for_channels;
  EXPECT_NE(0, failures());
}

}  // namespace
}  // namespace polypath::test
