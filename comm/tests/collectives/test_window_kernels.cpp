// Results that go straight into the receivers' buffers, by the kernels' host builds: every byte, in
// every mixture of ranks that announce a place and ranks that do not.
#include <gtest/gtest.h>

#include "window_cases.hpp"

namespace polypath::test {
namespace {

TEST(WindowKernels, RandomRows_AreRight) {
  std::string wrong;
  EXPECT_EQ(0, first_wrong_window_row(random_rows(60), &wrong)) << wrong;
}

TEST(WindowKernels, EveryAlignment_IsRight) {
  Random random(9);
  for (std::uint32_t shift = 0; shift < 16; ++shift) {
    std::vector<CollectiveCase> cases;
    for (const CollectiveOp op :
         {CollectiveOp::allreduce, CollectiveOp::all_gather, CollectiveOp::all_to_all,
          CollectiveOp::broadcast, CollectiveOp::reduce, CollectiveOp::reduce_scatter}) {
      CollectiveCase what = window_case(op, 4096 + shift);
      what.type = DataType::uint8;
      what.out_shift = shift;
      what.in_shift = (shift * 5) % 16;
      cases.push_back(what);
      what.out_shifts = {0, shift, 0, 16 - shift};
      cases.push_back(what);
    }
    HostKernelRanks ranks(window_shape());
    ASSERT_EQ("", ranks.run_row(cases, random())) << "shift " << shift;
  }
}

/// Lengths at which the last channels or tiles of some ranks are missing.
TEST(WindowKernels, EveryLengthNearTheFirstTiles_IsRight) {
  Random random(10);
  for (const CollectiveOp op : {CollectiveOp::allreduce, CollectiveOp::all_gather,
                                CollectiveOp::all_to_all, CollectiveOp::broadcast}) {
    HostKernelRanks ranks(window_shape());
    for (std::uint64_t tiles = 0; tiles < 12; ++tiles) {
      std::vector<CollectiveCase> cases;
      for (const int more : {-3, 0, 1, 128}) {
        CollectiveCase what = window_case(op, 0);
        what.type = DataType::uint8;
        what.count = static_cast<std::uint64_t>(
            std::max(0, static_cast<int>(tiles * what.tile_bytes * what.blocks) + more));
        cases.insert(cases.end(), 2, what);
      }
      ASSERT_EQ("", ranks.run_row(cases, random())) << tiles << " tiles";
    }
  }
}

TEST(WindowKernels, TwoHops_UseNoSlotOfRing1) {
  for (const CollectiveOp op :
       {CollectiveOp::allreduce, CollectiveOp::broadcast, CollectiveOp::reduce}) {
    CollectiveCase what = window_case(op, 3000);
    HostKernelRanks ranks(window_shape());
    ASSERT_EQ("", ranks.run_row({what, what}, 3));
    EXPECT_FALSE(ranks.has_used_slots(1)) << what.text();
    EXPECT_TRUE(ranks.has_used_slots(0)) << what.text();
    what.windows = op == CollectiveOp::reduce ? 0 : ~4U;  // the root receives, or rank 2 as well
    ASSERT_EQ("", ranks.run_row({what}, 4));
    EXPECT_TRUE(ranks.has_used_slots(1)) << what.text();
  }
}

TEST(WindowKernels, MisalignedPlaces_AreNotAnnounced) {
  CollectiveCase what = window_case(CollectiveOp::allreduce, 3000);
  EXPECT_EQ(12, places_announced(what, 5));
  what.out_shifts = {0, 1, 32, 0};  // of 4 bytes: 128 are aligned
  EXPECT_EQ(9, places_announced(what, 5));
  what.windows = ~8U;
  EXPECT_EQ(6, places_announced(what, 5));
  what.windows = ~0U;
  what.out_shifts = {0, 4, 8, 16};  // 16, 32 and 64 bytes
  EXPECT_EQ(3, places_announced(what, 5));
}

TEST(WindowKernels, AllToAllInPlace_AnnouncesNothing) {
  CollectiveCase what = window_case(CollectiveOp::all_to_all, 3008);
  EXPECT_EQ(12, places_announced(what, 6));
  what.placement = Placement::in_place;
  EXPECT_EQ(0, places_announced(what, 6));
}

TEST(WindowKernels, UnlikeCall_StaysInsideShorterBuffer) {
  for (const CollectiveOp op : {CollectiveOp::allreduce, CollectiveOp::all_gather,
                                CollectiveOp::all_to_all, CollectiveOp::broadcast})
    for (std::uint64_t seed = 1; seed <= 5; ++seed) EXPECT_EQ("", run_shorter_on_first(op, seed));
}

TEST(WindowKernels, Timeout_WithdrawsPlaces) {
  for (const CollectiveOp op : {CollectiveOp::allreduce, CollectiveOp::all_gather})
    for (std::uint64_t seed = 1; seed <= 5; ++seed) EXPECT_EQ(0, places_after_timeout(op, seed));
}

}  // namespace
}  // namespace polypath::test
