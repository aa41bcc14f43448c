// Pools of one GPU: blocks of all sizes, held and freed at random by many threads. None is given
// twice, all come back, no other thread writes to them; and each defect of pool_mutant is found.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "case_of.hpp"
#include "polypath/device/pool.cuh"
#include "pool_kernels.h"
#include "pool_memory.hpp"
#include "simt/run.hpp"

namespace polypath::test {
namespace {

using device::pool_mutant;
using device::pool_view;
using device::status;

/// A pool, and what threads write down.
class PoolAndNotes : public PoolMemory {
 public:
  PoolAndNotes(std::uint32_t slabs, std::uint32_t slab_log2)
      : PoolMemory(slabs, slab_log2),
        held_(granules(), 0),
        times_(granules(), 0),
        results_(PoolRow::kStatuses + PoolRow::kWrongs, 0) {}
  [[nodiscard]] std::uint32_t result(status which) const {
    return results_[static_cast<std::size_t>(which)];
  }
  PoolRow row(PoolMembers members, std::uint32_t rounds) {
    PoolRow pool_row{};
    pool_row.view = view();
    pool_row.members = members;
    pool_row.rounds = rounds;
    pool_row.held = held_.data();
    pool_row.times = times_.data();
    pool_row.results = results_.data();
    return pool_row;
  }
  /// Empty, or what the threads found wrong.
  [[nodiscard]] std::string wrong() const {
    const char* const texts[] = {"other bytes in a block", "a block of two holders",
                                 "a block at a wrong place", "a counter that is too old"};
    for (unsigned i = 0; i < PoolRow::kWrongs; ++i)
      if (results_[PoolRow::kStatuses + i] != 0) return texts[i];
    return "";
  }
  /// Empty, or what is wrong once all has been freed.
  [[nodiscard]] std::string left() {
    if (std::string what = PoolMemory::left(); !what.empty()) return what;
    if (result(status::done) !=
        count(&device::pool_counts::allocated) + count(&device::pool_counts::freed))
      return "counts that are wrong";
    if (result(status::invalid_handle) + result(status::double_free) != 0)
      return "a block that was none";
    return "";
  }

 private:
  std::vector<std::uint32_t> held_;
  std::vector<std::uint32_t> times_;
  std::vector<std::uint32_t> results_;
};

std::string run(const PoolRow& row, std::uint64_t seed, unsigned blocks = 3,
                unsigned threads = 64) {
  simt::RunOptions options;
  options.seed = seed;
  options.max_steps = 20'000'000;
  PoolRow seeded_row = row;
  seeded_row.seed = static_cast<std::uint32_t>(seed * 7919);
  return simt::run({{simt::launch("polypath_test_pool", 0, blocks, threads, seeded_row)}}, options);
}

struct PoolCase {
  const char* name;
  PoolMembers members;
  std::uint32_t slabs;
  std::uint32_t slab_log2;
  std::uint32_t least, most;
  bool counts;
  std::uint32_t rounds = 12;
  unsigned blocks = 3;
  unsigned threads = 64;
};

std::string run_case(const PoolCase& test_case, std::uint64_t seed) {
  PoolAndNotes memory(test_case.slabs, test_case.slab_log2);
  if (test_case.counts) memory.clear_blocks();
  PoolRow row = memory.row(test_case.members, test_case.rounds);
  row.least = test_case.least;
  row.most = test_case.most;
  row.counts = test_case.counts ? 1 : 0;
  if (std::string error = run(row, seed, test_case.blocks, test_case.threads); !error.empty())
    return error;
  if (std::string wrong = memory.wrong(); !wrong.empty()) return wrong;
  return memory.left();
}

class Pools : public testing::TestWithParam<PoolCase> {};

TEST_P(Pools, GiveEachBlockOnceAndGetAllBack) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) ASSERT_EQ(run_case(GetParam(), seed), "") << seed;
}

constexpr PoolCase kPoolCases[] = {
    {.name = "threads",
     .members = PoolMembers::thread,
     .slabs = 64,
     .slab_log2 = 13,
     .least = 0,
     .most = 0,
     .counts = false},
    {.name = "warps",
     .members = PoolMembers::warp,
     .slabs = 64,
     .slab_log2 = 14,
     .least = 0,
     .most = 0,
     .counts = false},
    {.name = "one_of_a_warp",
     .members = PoolMembers::one_of_warp,
     .slabs = 20,
     .slab_log2 = 14,
     .least = 0,
     .most = 0,
     .counts = false},
    {.name = "blocks",
     .members = PoolMembers::block,
     .slabs = 64,
     .slab_log2 = 14,
     .least = 0,
     .most = 0,
     .counts = false},
    {.name = "small_ones",
     .members = PoolMembers::warp,
     .slabs = 16,
     .slab_log2 = 13,
     .least = 1,
     .most = 64,
     .counts = false},
    {.name = "large_ones",
     .members = PoolMembers::warp,
     .slabs = 128,
     .slab_log2 = 14,
     .least = 2049,
     .most = 4096,
     .counts = false},
    // Too few for all: what is freed is what others take.
    {.name = "scarce_threads",
     .members = PoolMembers::thread,
     .slabs = 5,
     .slab_log2 = 13,
     .least = 0,
     .most = 0,
     .counts = false},
    {.name = "scarce_warps",
     .members = PoolMembers::warp,
     .slabs = 9,
     .slab_log2 = 13,
     .least = 0,
     .most = 0,
     .counts = false},
    {.name = "scarce_small_ones",
     .members = PoolMembers::warp,
     .slabs = 2,
     .slab_log2 = 13,
     .least = 1,
     .most = 64,
     .counts = false},
    {.name = "scarce_large_ones",
     .members = PoolMembers::warp,
     .slabs = 7,
     .slab_log2 = 15,
     .least = 2049,
     .most = 4096,
     .counts = false},
    {.name = "counting_threads",
     .members = PoolMembers::thread,
     .slabs = 2,
     .slab_log2 = 13,
     .least = 65,
     .most = 128,
     .counts = true},
    {.name = "counting_warps",
     .members = PoolMembers::warp,
     .slabs = 1,
     .slab_log2 = 14,
     .least = 129,
     .most = 256,
     .counts = true},
    {.name = "counting_single_warps",
     .members = PoolMembers::warp,
     .slabs = 1,
     .slab_log2 = 13,
     .least = 129,
     .most = 256,
     .counts = true,
     .rounds = 20,
     .blocks = 8,
     .threads = 32},
};
INSTANTIATE_TEST_SUITE_P(Pool, Pools, testing::ValuesIn(kPoolCases),
                         [](const auto& at) { return at.param.name; });

TEST(PoolOfOneSize, GivesAllBlocksThenEmptyThenReuses) {
  for (const auto members : {PoolMembers::thread, PoolMembers::warp})
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      constexpr std::uint32_t kSlabs = 6;
      PoolAndNotes memory(kSlabs, 14);  // of 2 KiB 8 each
      PoolRow row = memory.row(members, 6);
      std::vector<std::uint32_t> handles(std::size_t{2} * 64 * PoolRow::kHeld, 7);
      row.least = row.most = 2000;
      row.keeps = 1;
      row.handles = handles.data();
      ASSERT_EQ(run(row, seed, 2), "");
      ASSERT_EQ(memory.wrong(), "");
      std::set<std::uint32_t> blocks(handles.begin(), handles.end());
      blocks.erase(pool_view::kNoBlock);
      EXPECT_EQ(blocks.size(), kSlabs * 8U);
      EXPECT_EQ(memory.result(status::done), kSlabs * 8U);
      EXPECT_GT(memory.result(status::empty), 0U);
      EXPECT_EQ(memory.count(&device::pool_counts::failed), memory.result(status::empty));
      // Freed, whole slabs serve another size.
      std::uint32_t result = 77;
      std::vector<simt::Launch> frees;
      for (const std::uint32_t handle : blocks)
        frees.push_back(simt::launch("polypath_test_pool_free", 0, 1, 32,
                                     PoolFree{memory.view(), handle, &result}));
      ASSERT_EQ(simt::run({frees}), "");
      EXPECT_EQ(result, 0U);
      PoolRow other = memory.row(members, 8);
      other.least = other.most = 1024;
      other.keeps = 1;
      other.handles = handles.data();
      std::fill(other.held, other.held + memory.granules(), 0);
      ASSERT_EQ(run(other, seed, 2), "");
      EXPECT_EQ(memory.result(status::done), kSlabs * 8U + kSlabs * 16U);
      EXPECT_EQ(memory.wrong(), "");
    }
}

/// Frees what was not allocated. Empty, or what was wrong.
std::string free_wrong_handles() {
  PoolAndNotes memory(3, 14);
  PoolRow row = memory.row(PoolMembers::thread, 1);
  std::vector<std::uint32_t> handles(std::size_t{64} * PoolRow::kHeld, pool_view::kNoBlock);
  row.least = row.most = 300;
  row.keeps = 1;
  row.handles = handles.data();
  if (std::string error = run(row, 1, 1); !error.empty()) return error;
  const std::uint32_t held = *std::ranges::find_if(
      handles, [](std::uint32_t handle) { return handle != pool_view::kNoBlock; });
  const std::vector<std::uint32_t> gates(memory.view().gates, memory.view().gates + 3);
  std::string wrong;
  const auto free = [&](const char* what, std::uint32_t handle, status expected) {
    std::uint32_t result = 77;
    wrong += simt::run({{simt::launch("polypath_test_pool_free", 0, 1, 32,
                                      PoolFree{memory.view(), handle, &result})}});
    if (result != static_cast<std::uint32_t>(expected))
      wrong += std::string(what) + " gives " + std::to_string(result) + "; ";
  };
  free("nothing to free", pool_view::kNoBlock, status::done);
  free("within a block", held + 1, status::invalid_handle);
  free("of another class", held + (1U << pool_view::kClassShift), status::double_free);
  free("of no class", (7U << pool_view::kClassShift) | 1, status::invalid_handle);
  free("beyond the slabs", (3U << pool_view::kClassShift) | 3U << 8, status::invalid_handle);
  if (!std::equal(gates.begin(), gates.end(), memory.view().gates)) wrong += "something was done";
  free("a block", held, status::done);
  free("a second time", held, status::double_free);
  if (memory.count(&device::pool_counts::refused) != 5 ||
      memory.count(&device::pool_counts::freed) != 1)
    wrong += "wrong counts";
  return wrong;
}

TEST(PoolHandles, WrongOrFreedHandles_AreRefused) { EXPECT_EQ(free_wrong_handles(), ""); }

/// One of eight blocks is free; the gate was raised by two in vain, and is lowered at some time.
TEST(PoolGates, TransientlyRaisedGate_IsNotEmpty) {
  for (std::uint64_t seed = 1; seed <= 16; ++seed) {
    PoolMemory memory(1, 13);
    const pool_view view = memory.view();
    constexpr std::uint32_t kClass = 5;  // of 1024 bytes, as gates have it
    *view.gates = kClass << pool_view::kGateShift | 9;
    *view.bits = 0x7F;
    std::uint32_t result = 77;
    simt::RunOptions options;
    options.seed = seed;
    options.max_steps = 1'000'000;
    ASSERT_EQ(
        simt::run(
            {{simt::launch("polypath_test_pool_allocate", 0, 1, 32, PoolFree{view, 1024, &result})},
             {simt::launch("polypath_test_pool_lower", 0, 1, 32, PoolFree{view, 2, nullptr})}},
            options),
        "");
    EXPECT_EQ(result, static_cast<std::uint32_t>(status::done)) << seed;
    EXPECT_EQ(*view.gates & pool_view::kGateCount, 8U);
    EXPECT_EQ(*view.bits, 0xFFU);
  }
}

TEST(PoolSizes, BeyondTheLargestClassAreRefused) {
  PoolAndNotes memory(4, 14);
  PoolRow row = memory.row(PoolMembers::warp, 3);
  row.least = 4097;
  row.most = 5000;
  ASSERT_EQ(run(row, 1), "");
  EXPECT_GT(memory.result(status::too_large), 0U);
  EXPECT_EQ(memory.result(status::done), 0U);
  EXPECT_EQ(memory.count(&device::pool_counts::refused), memory.result(status::too_large));
}

constexpr const char* kByHandles = nullptr;
struct PoolFaultCase {
  pool_mutant fault;
  const char* found_by;  ///< a name of kPoolCases, or kByHandles
};

class PoolMutant : public testing::TestWithParam<PoolFaultCase> {
 protected:
  void TearDown() override { active_mutant<pool_mutant> = pool_mutant::none; }
};

TEST_P(PoolMutant, MakesRunsFail) {
  active_mutant<pool_mutant> = GetParam().fault;
  if (GetParam().found_by == kByHandles) {
    EXPECT_NE(free_wrong_handles(), "");
    return;
  }
  int failures = 0;
  for (std::uint64_t seed = 1; seed <= 300 && failures < 3; ++seed)
    failures += run_case(case_of(kPoolCases, GetParam().found_by), seed).empty() ? 0 : 1;
  EXPECT_GE(failures, 3) << "of 300 seeds";
}

INSTANTIATE_TEST_SUITE_P(
    Pool, PoolMutant,
    testing::Values(PoolFaultCase{pool_mutant::bits_not_compared, "scarce_threads"},
                    PoolFaultCase{pool_mutant::bit_not_looked_at, kByHandles},
                    PoolFaultCase{pool_mutant::class_not_looked_at, kByHandles},
                    PoolFaultCase{pool_mutant::no_promise_returned, "scarce_warps"},
                    PoolFaultCase{pool_mutant::gate_not_lowered, "scarce_threads"},
                    PoolFaultCase{pool_mutant::late_class, "scarce_threads"},
                    PoolFaultCase{pool_mutant::no_release, "counting_threads"},
                    PoolFaultCase{pool_mutant::no_acquire, "counting_single_warps"},
                    PoolFaultCase{pool_mutant::same_rank, "warps"}));

}  // namespace
}  // namespace polypath::test
