// How the blocks of a GPU are shared out among communicators.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "base/error.hpp"
#include "collectives/block_budget.hpp"

namespace polypath {
namespace {

CUcontext some_context(int number) {
  return reinterpret_cast<CUcontext>(static_cast<std::uintptr_t>(0x1000 + 16 * number));
}

TEST(BlockBudget, FirstCommunicator_GetsMostBlocks) {
  const BlockReservation first(some_context(1), 132, 128);
  const BlockReservation second(some_context(1), 132, 128);
  EXPECT_EQ(first.blocks(), 112);
  EXPECT_EQ(second.blocks(), 8);
}

TEST(BlockBudget, AllGrants_LeaveBlocksToWaits) {
  for (const int capacity : {132, 108, 80, 40}) {
    std::vector<std::unique_ptr<BlockReservation>> grants;
    int blocks = 0;
    try {
      for (;;) {
        grants.push_back(std::make_unique<BlockReservation>(some_context(5), capacity, 128));
        blocks += grants.back()->blocks();
      }
    } catch (const Error&) {
      EXPECT_GE(grants.size(), 2U) << capacity;
      EXPECT_LE(blocks, capacity - capacity / 16) << capacity;
    }
  }
}

/// What communicators are granted one after another, until nothing is left.
std::vector<int> grants_of(int number, int capacity, int most, int spared) {
  std::vector<std::unique_ptr<BlockReservation>> grants;
  std::vector<int> blocks;
  try {
    for (;;) {
      grants.push_back(
          std::make_unique<BlockReservation>(some_context(number), capacity, most, spared));
      blocks.push_back(grants.back()->blocks());
    }
  } catch (const Error&) {
    return blocks;
  }
}

TEST(BlockBudget, ReservedSms_AreNeverGranted) {
  EXPECT_EQ(grants_of(2, 132, 64, 32), (std::vector{48, 32, 8, 4, 4, 4}));
  EXPECT_EQ(grants_of(2, 108, 64, 32), (std::vector{32, 16, 8, 8, 4, 4, 4}));
  EXPECT_EQ(grants_of(2, 80, 64, 32), (std::vector{32, 8, 4, 4}));
  EXPECT_EQ(grants_of(2, 40, 64, 32), (std::vector{8, 4, 4, 4}));  // half of it spared
  EXPECT_EQ(grants_of(2, 132, 16, 32), (std::vector{16, 16, 16, 16, 16, 8, 4, 4, 4}));
}

TEST(BlockBudget, ReleasedBlocks_AreGrantedAgain) {
  auto first = std::make_unique<BlockReservation>(some_context(3), 132, 64, 32);
  const BlockReservation second(some_context(3), 132, 64, 32);
  EXPECT_EQ(second.blocks(), 32);
  first.reset();
  EXPECT_EQ(BlockReservation(some_context(3), 132, 64, 32).blocks(), 32);  // of 68
  first = std::make_unique<BlockReservation>(some_context(4), 132, 64, 32);
  first->keep(20);
  EXPECT_EQ(BlockReservation(some_context(4), 132, 64, 32).blocks(), 48);  // of 80, halved
}

}  // namespace
}  // namespace polypath
