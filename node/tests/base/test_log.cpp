#include "base/log.hpp"

#include <gtest/gtest.h>

namespace polypath {
namespace {

TEST(DriverFailure, ShutdownIsNoWarning) {
  EXPECT_EQ(level_of_result(4), LogLevel::info);    // CUDA_ERROR_DEINITIALIZED
  EXPECT_EQ(level_of_result(709), LogLevel::info);  // CUDA_ERROR_CONTEXT_IS_DESTROYED
  for (const int wrong : {1, 2, 3, 5, 201, 700, 719, 999})
    EXPECT_EQ(level_of_result(wrong), LogLevel::warn) << wrong;
}

}  // namespace
}  // namespace polypath
