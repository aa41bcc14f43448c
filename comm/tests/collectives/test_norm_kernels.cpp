// The kernels that sum rows over ranks and normalise them, run as host builds whose threads take
// turns at random and whose stores arrive late: every byte that every rank has after every call of
// a row, against the documented order of sums.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "norm_kernel_ranks.hpp"

namespace polypath::test {
namespace {

/// Regions of few rows of cells: they are used again and again.
ScratchShape small(std::uint32_t ranks) { return {ranks, 4, 4, 1024, 16 * 1024}; }

MixedCase norm(const NormCase& what) { return {true, what, {}}; }

NormCase plain(std::uint32_t ranks, std::uint32_t rows, std::uint32_t hidden) {
  NormCase what;
  what.ranks = ranks;
  what.rows = rows;
  what.hidden = hidden;
  what.blocks = 3;
  return what;
}

/// A collective by cells, of the same scratch.
MixedCase random_collective(Random& random, const ScratchShape& shape) {
  MixedCase mixed;
  mixed.is_norm = false;
  do mixed.collective = random_case(random, shape, 8 * 1024, 4);
  while (mixed.collective.family != KernelFamily::cells);
  return mixed;
}

class NormKernelRows : public testing::TestWithParam<std::uint32_t> {};

TEST_P(NormKernelRows, RandomRowsOfCalls_LeaveEveryByteRight) {
  Random random(GetParam());
  constexpr int kRows = random_rows(12);
  NormKernelRanks ranks(small(GetParam()), GetParam() % 2 == 0 ? 64 : 96);
  for (int row = 0; row < kRows; ++row) {
    std::vector<MixedCase> cases;
    for (int call = 0; call < 5; ++call)
      if (random() % 4 == 0) {
        cases.push_back(random_collective(random, ranks.shape()));
      } else {
        NormCase what = random_norm(random, GetParam(), 1200, 10000, 4);
        what.rows = static_cast<std::uint32_t>(
            std::min<std::uint64_t>(what.rows, max_norm_rows(ranks.shape(), what.hidden)));
        cases.push_back(norm(what));
      }
    ASSERT_EQ("", ranks.run_row(cases, random())) << "row " << row;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, NormKernelRows, testing::Range(1U, kMaxRanks + 1));

/// Few warps take several units each; more than are kept in registers are loaded again.
TEST(NormKernel, LongRows_AreRightForAnyGrid) {
  for (const unsigned threads : {32U, 64U, 256U}) {
    NormKernelRanks ranks({2, 4, 4, 1024, 64 * 1024}, threads);
    std::vector<MixedCase> cases;
    for (const std::uint32_t hidden : {8U, 376U, 384U, 392U, 5120U, 16384U})
      for (const std::uint32_t team : {1U, 2U, 3U}) {
        NormCase what = plain(2, 1, hidden);
        what.team = team;
        cases.push_back(norm(what));
      }
    EXPECT_EQ("", ranks.run_row(cases, threads));
  }
}

TEST(NormKernel, TimeoutNamesTheAbsentRank) {
  NormKernelRanks ranks(small(3));
  EXPECT_NE("", ranks.run_row({norm(plain(3, 2, 800))}, 5, /*missing=*/1));
  const wait_error& status = ranks.status(0);
  EXPECT_EQ(1U, status.given_up);
  EXPECT_EQ(7U, status.kernel);
  EXPECT_EQ(wait_error::time_limit, status.reason);
  EXPECT_EQ(1U, status.waited_for_rank);
}

TEST(NormKernel, CallsThatDiffer_EndOnAllRanks) {
  struct Other {
    const char* name;
    void (*change)(MixedCase&);
  };
  const std::vector<Other> others{
      {"rows", [](MixedCase& what) { what.norm.rows = 1; }},
      {"hidden", [](MixedCase& what) { what.norm.hidden = 408; }},
      {"type", [](MixedCase& what) { what.norm.type = DataType::float16; }},
      {"output", [](MixedCase& what) { what.norm.to_float8 = true; }},
      {"epsilon", [](MixedCase& what) { what.norm.epsilon = 1e-5F; }},
      {"residual", [](MixedCase& what) { what.norm.has_residual = false; }},
      {"blocks", [](MixedCase& what) { what.norm.blocks = 2; }},
      {"team", [](MixedCase& what) { what.norm.team = 2; }},
      {"allreduce",
       [](MixedCase& what) {
         what.is_norm = false;
         what.collective.family = KernelFamily::cells;
         what.collective.type = DataType::bfloat16;
         what.collective.ranks = 3;
         what.collective.count = 800;
         what.collective.stages = 1;
         what.collective.blocks = 3;
       }},
  };
  for (const Other& other : others) {
    SCOPED_TRACE(other.name);
    NormKernelRanks ranks(small(3));
    std::vector<MixedCase> by_rank(3, norm(plain(3, 2, 400)));
    other.change(by_rank[1]);
    EXPECT_EQ("", ranks.run_apart(by_rank, 6));
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(wait_error::mismatch, ranks.status(rank).reason) << "rank " << rank;
      EXPECT_TRUE(rank == 1 ? ranks.status(rank).waited_for_rank != 1
                            : ranks.status(rank).waited_for_rank == 1);
    }
  }
}

/// Alone, as after an allreduce: the same bits as for one rank.
TEST(NormKernel, NormAlone_HasTheSameOrder) {
  Random random(11);
  for (int turn = 0; turn < 20; ++turn) {
    const NormCase what = random_norm(random, 1, 3000, 20000, 4);
    const NormImage image = norm_images(random, what).front();
    std::vector<std::uint64_t> memory(image.before.size() / 8 + 2);
    auto* const raw = reinterpret_cast<unsigned char*>(memory.data());
    auto* const at = raw + (16 - reinterpret_cast<std::uintptr_t>(raw) % 16) % 16;
    std::memcpy(at, image.before.data(), image.before.size());
    NormArgs args = norm_args_of(what, small(1), 0);
    args.call.in = at + image.in_at;
    args.call.out = at + image.out_at;
    args.residual = what.has_residual ? at + image.residual_at : nullptr;
    args.residual_out = at + image.residual_out_at;
    args.weight = at + image.weight_at;
    args.scale = what.to_float8 ? reinterpret_cast<const float*>(at + image.scale_at) : nullptr;
    simt::RunOptions options;
    options.seed = random();
    options.memory.push_back({at, image.before.size(), 0});
    ASSERT_EQ("", simt::run({{simt::launch(norm_kernel(false, what.type).name, 0, what.blocks,
                                           turn % 2 == 0 ? 32 : 128, args)}},
                            options));
    EXPECT_EQ("", difference(image, at)) << what.text();
  }
}

}  // namespace
}  // namespace polypath::test
