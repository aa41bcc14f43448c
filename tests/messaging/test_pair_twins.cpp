// Pairs: one group pushes, one pops, in several kernels behind one another.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "polypath/device/cells.cuh"
#include "polypath/device/pair.cuh"
#include "queue_memory.hpp"
#include "simt/run.hpp"

namespace polypath::test {
namespace {

using device::PairFault;

struct PairCase {
  const char* name;
  Members members;
  std::uint32_t words;
  std::uint32_t items;
  unsigned capacity_log2;
  unsigned segment_log2;
};

std::string run_pairs(const PairCase& of, std::uint64_t seed) {
  constexpr unsigned kThreads = 64;
  constexpr unsigned kKernels = 3;
  constexpr unsigned kCalls = 5;
  const unsigned size = of.members == Members::thread ? 1 : of.members == Members::warp ? 32 : 64;
  const unsigned teams = kThreads / size;
  const unsigned room = kCalls * of.items * size;
  PairMemory memory(of.words, of.capacity_log2, of.segment_log2, teams);
  std::vector<Found> found(std::size_t{kKernels} * teams * room, Found{7, 7, 7, 7});
  std::vector<simt::Launch> pushes;
  std::vector<simt::Launch> pops;
  for (unsigned kernel = 0; kernel < kKernels; ++kernel) {
    const auto bytes = static_cast<std::uint32_t>(cell_bytes(of.words) << of.capacity_log2);
    const PairRow row{
        memory.view(), bytes,  of.members,    of.words,
        of.items,      kCalls, kernel * room, found.data() + std::size_t{kernel} * teams * room,
        room};
    pushes.push_back(simt::launch("polypath_test_pair_pushes", 0, 1, kThreads, row));
    pops.push_back(simt::launch("polypath_test_pair_pops", 0, 1, kThreads, row));
  }
  simt::RunOptions options;
  options.seed = seed;
  options.most_turns = 1'000'000;
  const std::string error = simt::run({pushes, pops}, options);
  if (!error.empty()) return error;
  for (unsigned kernel = 0; kernel < kKernels; ++kernel)
    for (unsigned team = 0; team < teams; ++team)
      for (unsigned i = 0; i < room; ++i) {
        const Found& each = found[(std::size_t{kernel} * teams + team) * room + i];
        if (each.team != team || each.number != kernel * room + i || each.is_right != 1 ||
            each.result != 0)
          return "wrong item";
      }
  return "";
}

class Pairs : public testing::TestWithParam<PairCase> {};

TEST_P(Pairs, EveryItemInOrder) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed)
    ASSERT_EQ(run_pairs(GetParam(), seed), "") << seed;
}

constexpr PairCase kPairCases[] = {
    {"threads", Members::thread, 3, 1, 2, 0}, {"threads_by_two", Members::thread, 24, 2, 4, 1},
    {"warps", Members::warp, 3, 2, 8, 6},     {"warps_of_128_bytes", Members::warp, 24, 1, 7, 5},
    {"block", Members::block, 3, 2, 9, 7},    {"block_of_128_bytes", Members::block, 24, 1, 8, 6},
};
INSTANTIATE_TEST_SUITE_P(Pair, Pairs, testing::ValuesIn(kPairCases),
                         [](const auto& at) { return at.param.name; });

class PlantedPairFault : public testing::TestWithParam<PairFault> {
 protected:
  void TearDown() override { planted_fault<PairFault> = PairFault::none; }
};

TEST_P(PlantedPairFault, IsFound) {
  planted_fault<PairFault> = GetParam();
  int found = 0;
  for (std::uint64_t seed = 1; seed <= 20 && found < 3; ++seed)
    found += run_pairs(kPairCases[3], seed).empty() ? 0 : 1;
  EXPECT_GE(found, 3) << "of 20 seeds";
}

INSTANTIATE_TEST_SUITE_P(Pair, PlantedPairFault,
                         testing::Values(PairFault::no_credit, PairFault::credit_before_reading,
                                         PairFault::turn_forgotten));

}  // namespace
}  // namespace polypath::test
