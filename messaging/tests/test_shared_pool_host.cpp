// Blocks that are given to other GPUs, filled there, and given back.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "case_of.hpp"
#include "polypath/device/shared_pool.cuh"
#include "pool_memory.hpp"
#include "queue_memory.hpp"
#include "shared_pool_kernels.h"
#include "simt/run.hpp"

namespace polypath::test {
namespace {

using device::shared_pool_mutant;

struct SharedPoolCase {
  const char* name;
  int ranks;
  std::uint32_t slabs;
  unsigned returns_log2;  ///< cells of the queues by which blocks come back
  std::uint32_t rounds;
};

std::string run_shared(const SharedPoolCase& test_case, std::uint64_t seed) {
  const auto ranks = static_cast<std::size_t>(test_case.ranks);
  std::vector<std::unique_ptr<PoolMemory>> pools;
  std::vector<std::unique_ptr<QueueMemory>> parcels;  // [from][to]
  std::vector<std::unique_ptr<QueueMemory>> returns;
  simt::RunOptions options;
  options.seed = seed;
  options.max_steps = 3'000'000;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    pools.push_back(std::make_unique<PoolMemory>(test_case.slabs, 13));
    options.memory.push_back(
        {pools.back()->begin(), pools.back()->bytes(), static_cast<int>(rank)});
    for (std::size_t to = 0; to < ranks; ++to) {
      parcels.push_back(std::make_unique<QueueMemory>(3, 8, 5));
      returns.push_back(
          std::make_unique<QueueMemory>(1, test_case.returns_log2, test_case.returns_log2 - 2));
    }
  }
  // For each rank: parcels to others, from others; returns to others, from others.
  std::vector<std::vector<device::queue_view>> views(ranks * 4);
  std::vector<std::uint32_t> wrong(ranks, 0);
  std::vector<std::uint32_t> returned(ranks, 0);
  std::vector<std::vector<simt::Launch>> rows;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    for (std::size_t other = 0; other < ranks; ++other) {
      views[rank * 4].push_back(parcels[rank * ranks + other]->view());
      views[rank * 4 + 1].push_back(parcels[other * ranks + rank]->view());
      views[rank * 4 + 2].push_back(returns[rank * ranks + other]->view());
      views[rank * 4 + 3].push_back(returns[other * ranks + rank]->view());
    }
    SharedPoolRow row{};
    row.view.own = pools[rank]->view();
    row.view.rank = static_cast<std::int32_t>(rank);
    row.view.ranks = test_case.ranks;
    for (std::size_t other = 0; other < ranks; ++other)
      row.view.blocks[other] = pools[other]->view().blocks;
    row.view.to_owner = views[rank * 4 + 2].data();
    row.view.from_holder = views[rank * 4 + 3].data();
    row.to = views[rank * 4].data();
    row.from = views[rank * 4 + 1].data();
    row.rounds = test_case.rounds;
    row.seed = static_cast<std::uint32_t>(seed * 1000 + rank * 100);
    row.wrong = &wrong[rank];
    row.returned = &returned[rank];
    const int device = static_cast<int>(rank);
    rows.push_back({simt::launch("polypath_test_shared_pool", device, 2, 64, row)});
  }
  if (std::string error = simt::run(rows, options); !error.empty()) return error;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (wrong[rank] != 0) return "rank " + std::to_string(rank) + " found something wrong";
    if (std::string left = pools[rank]->left(); !left.empty()) return left;
  }
  return "";
}

constexpr SharedPoolCase kSharedPoolCases[] = {
    {.name = "two_ranks", .ranks = 2, .slabs = 64, .returns_log2 = 10, .rounds = 6},
    {.name = "three_ranks", .ranks = 3, .slabs = 64, .returns_log2 = 10, .rounds = 6},
    {.name = "two_ranks_with_short_queues",
     .ranks = 2,
     .slabs = 80,
     .returns_log2 = 7,
     .rounds = 6},
};

class SharedPools : public testing::TestWithParam<SharedPoolCase> {};
TEST_P(SharedPools, GiveBlocksToOthersAndGetThemBack) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed)
    ASSERT_EQ(run_shared(GetParam(), seed), "") << seed;
}
INSTANTIATE_TEST_SUITE_P(Pool, SharedPools, testing::ValuesIn(kSharedPoolCases),
                         [](const auto& at) { return at.param.name; });

class SharedPoolMutant : public testing::TestWithParam<shared_pool_mutant> {
 protected:
  void TearDown() override { active_mutant<shared_pool_mutant> = shared_pool_mutant::none; }
};
TEST_P(SharedPoolMutant, MakesRunsFail) {
  active_mutant<shared_pool_mutant> = GetParam();
  int failures = 0;
  for (std::uint64_t seed = 1; seed <= 300 && failures < 3; ++seed)
    failures += run_shared(case_of(kSharedPoolCases, "three_ranks"), seed).empty() ? 0 : 1;
  EXPECT_GE(failures, 3) << "of 300 seeds";
}
INSTANTIATE_TEST_SUITE_P(Pool, SharedPoolMutant,
                         testing::Values(shared_pool_mutant::no_release,
                                         shared_pool_mutant::next_rank));

}  // namespace
}  // namespace polypath::test
