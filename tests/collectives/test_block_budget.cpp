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

TEST(BlockBudget, TheFirstCommunicatorHasMost) {
  const BlockGrant first(some_context(1), 132, 128);
  const BlockGrant second(some_context(1), 132, 128);
  EXPECT_EQ(first.blocks(), 112);
  EXPECT_EQ(second.blocks(), 16);
}

TEST(BlockBudget, WhatIsSparedIsNeverGranted) {
  std::vector<std::unique_ptr<BlockGrant>> grants;
  const auto add = [&] {
    grants.push_back(std::make_unique<BlockGrant>(some_context(2), 132, 32, 32));
    return grants.back()->blocks();
  };
  EXPECT_EQ(add(), 32);
  EXPECT_EQ(add(), 32);
  EXPECT_EQ(add(), 32);
  EXPECT_EQ(add(), 4);
  EXPECT_THROW(add(), Error);
  grants.erase(grants.begin());
  EXPECT_EQ(add(), 32);
}

TEST(BlockBudget, HalfOfASmallGpuIsSparedAtTheMost) {
  const BlockGrant only(some_context(4), 40, 32, 32);
  EXPECT_EQ(only.blocks(), 4);
}

TEST(BlockBudget, LateOnesHaveAsManyAsEachOther) {
  const BlockGrant first(some_context(3), 80, 32, 32);
  EXPECT_EQ(first.blocks(), 32);
  std::vector<std::unique_ptr<BlockGrant>> late;
  for (int i = 0; i < 4; ++i) {
    late.push_back(std::make_unique<BlockGrant>(some_context(3), 80, 32, 32));
    EXPECT_EQ(late.back()->blocks(), 4);
  }
  EXPECT_THROW(BlockGrant(some_context(3), 80, 32, 32), Error);
}

}  // namespace
}  // namespace polypath
