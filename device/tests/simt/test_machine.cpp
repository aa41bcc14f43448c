// Threads, warps, barriers, and what is said of kernels that cannot end.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "simt/platform.cuh"
#include "simt/run.hpp"

namespace polypath::simt {
namespace {

SIMT_KERNEL(test_indices, 128, std::uint32_t* out) {
  const unsigned place = block_index() * block_size() + thread_index();
  store(out + place, grid_size() * 1'000'000 + place);
}

TEST(Machine, EveryThreadRunsOnce) {
  std::vector<std::uint32_t> out(5 * 96, 0);
  ASSERT_EQ("", run({{launch("test_indices", 0, 5, 96, out.data())}}, {.blocks_of_device = 2}));
  for (std::uint32_t i = 0; i < out.size(); ++i) EXPECT_EQ(5'000'000 + i, out[i]);
}

SIMT_KERNEL(test_warps, 64, std::uint64_t* out) {
  const unsigned me = thread_index();
  const unsigned odd = warp_ballot(me % 2 == 1);
  const std::uint64_t from_next = warp_shuffle(std::uint64_t{me} << 40, lane_index() + 1);
  const std::uint32_t across = warp_shuffle_xor(me, 16);
  const bool any = warp_any(me == 40);
  const bool all = warp_all(me >= 32);
  store(out + me, from_next + (std::uint64_t{across} << 8) + (odd == 0xAAAAAAAA ? 4U : 0U) +
                      (any ? 2U : 0U) + (all ? 1U : 0U));
}

TEST(Machine, WarpsExchangeVotesAndValues) {
  std::vector<std::uint64_t> out(64, 0);
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    ASSERT_EQ("", run({{launch("test_warps", 0, 1, 64, out.data())}}, {.seed = seed}));
    for (std::uint64_t me = 0; me < 64; ++me) {
      const std::uint64_t next = me / 32 * 32 + (me + 1) % 32;
      EXPECT_EQ((next << 40) + ((me ^ 16) << 8) + 4 + (me >= 32 ? 3 : 0), out[me]);
    }
  }
}

SIMT_KERNEL(test_begins_early, 64, std::uint32_t* words, bool half_of_them) {
  if (!half_of_them || warp_index() == 0) grid_dependency_wait();
  store(words + thread_index(), load(words + thread_index()) + 1);
}

TEST(Machine, EarlyStartWithoutWait_Fails) {
  std::vector<std::uint32_t> words(64, 7);
  for (const bool half_of_them : {false, true})
    for (const bool early : {false, true}) {
      std::ranges::fill(words, 7);
      Launch launched = launch("test_begins_early", 0, 1, 64, words.data(), half_of_them);
      launched.begins_early = early;
      const std::string error = run({{launched}});
      if (early && half_of_them) {
        EXPECT_NE(std::string::npos, error.find("grid_dependency_wait")) << error;
      } else {
        EXPECT_EQ("", error);
        EXPECT_EQ(std::vector<std::uint32_t>(64, 8), words);
      }
    }
}

// Two groups of warps hand values on through shared memory, by the barriers that they share.
SIMT_KERNEL(test_groups, 128, std::uint32_t* out, int turns) {
  SIMT_SHARED(std::uint32_t, value);
  const warp_group makers(0, 1, 1);
  const warp_group takers(1, 3, 2);
  for (int turn = 0; turn < turns; ++turn) {
    if (makers.holds_me()) {
      if (makers.is_leader()) value = static_cast<std::uint32_t>(turn);
      makers.sync();
    }
    barrier_sync(3, block_size());
    if (takers.holds_me()) {
      const bool is_match =
          takers.any(takers.rank() == 5 && value == static_cast<std::uint32_t>(turn));
      if (is_match && takers.is_leader()) red_add_relaxed(out, 1U);
    }
    barrier_sync(4, block_size());
  }
}

TEST(Machine, GroupsMeetAtTheirBarriers) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    std::uint32_t count = 0;
    ASSERT_EQ("", run({{launch("test_groups", 0, 1, 128, &count, 50)}}, {.seed = seed}));
    EXPECT_EQ(50U, count);
  }
}

SIMT_KERNEL(test_count, 64, std::uint64_t* count) {
  red_add_release(count, std::uint64_t{1});
  atomic_add_relaxed(count + 1, atomic_add_acq_rel(count + 2, std::uint64_t{1}));
}

TEST(Machine, AdditionsOfAllDevicesCount) {
  std::array<std::uint64_t, 3> count{};
  ASSERT_EQ("", run({{launch("test_count", 0, 3, 64, count.data())},
                     {launch("test_count", 1, 2, 32, count.data())}}));
  EXPECT_EQ((std::array<std::uint64_t, 3>{256, 255 * 256 / 2, 256}), count);
}

SIMT_KERNEL(test_wait, 32, const std::uint32_t* flag, std::uint64_t limit_ns,
            std::uint32_t* aborted) {
  const std::uint64_t begin = global_timer_ns();
  const bool has_come = spin_until([&] { return load_acquire(flag) == 1; },
                                   [&] { return global_timer_ns() - begin > limit_ns; });
  if (!has_come) red_add_relaxed(aborted, 1U);
}

TEST(Machine, WaitEndsAtItsTimeout) {
  const std::uint32_t flag = 0;
  std::uint32_t aborted = 0;
  EXPECT_EQ("",
            run({{launch("test_wait", 0, 2, 32, &flag, std::uint64_t{30'000'000'000}, &aborted)}}));
  EXPECT_EQ(64U, aborted);
}

SIMT_KERNEL(test_stuck, 64, const std::uint32_t* flag) {
  if (thread_index() == 0)
    spin_until([&] { return load_volatile(flag) == 1; }, [] { return false; });
  block_sync();
}

TEST(Machine, DeadlockNamesWaitersAndAddresses) {
  const std::uint32_t flag = 7;
  const std::string error = run({{launch("test_stuck", 3, 2, 64, &flag)}});
  EXPECT_TRUE(
      error.starts_with("deadlock:\ntest_stuck on GPU 3, block 0: 63 threads at barrier 0, "
                        "1 threads poll 0x"))
      << error;
  EXPECT_NE(error.npos, error.find("(0x7)")) << error;
}

// Blocks that wait for one another have to run together.
SIMT_KERNEL(test_all_blocks, 32, std::uint32_t* count) {
  if (thread_index() == 0) {
    red_add_relaxed(count, 1U);
    spin_until([&] { return load_relaxed(count) >= grid_size(); }, [] { return false; });
  }
}

TEST(Machine, MoreBlocksThanRunAtOnceWaitForEver) {
  std::uint32_t count = 0;
  EXPECT_EQ("", run({{launch("test_all_blocks", 0, 4, 32, &count)}}, {.blocks_of_device = 4}));
  count = 0;
  const std::string error =
      run({{launch("test_all_blocks", 0, 5, 32, &count)}}, {.blocks_of_device = 4});
  EXPECT_NE(error.npos, error.find("1 blocks have not begun")) << error;
}

SIMT_KERNEL(test_faults, 64, std::uint64_t* at, int kind) {
  const std::vector<int> lives(100, kind);  // on this stack, freed although the thread never ends
  if (kind == 0) store(at + 1, std::uint64_t{5});
  if (kind == 1)
    load(reinterpret_cast<const std::uint64_t*>(reinterpret_cast<const char*>(at) + 4));
  if (kind == 2 && thread_index() < 32) barrier_sync(1, thread_index() == 0 ? 64 : 32);
  if (kind == 3) load(static_cast<const std::uint32_t*>(nullptr));
  block_sync();
}

TEST(Machine, FaultsEndTheGrid) {
  std::array<std::uint64_t, 4> words{};
  const auto error = [&](int kind) {
    return run({{launch("test_faults", 0, 1, 64, words.data(), kind)}});
  };
  EXPECT_EQ("", error(0));
  EXPECT_EQ(5U, words[1]);
  EXPECT_NE(std::string::npos, error(1).find("is not aligned to 8 bytes"));
  EXPECT_NE(std::string::npos, error(2).find("barrier 1 of "));
  EXPECT_EQ("test_faults: a null address", error(3));
}

}  // namespace
}  // namespace polypath::simt
