// The context that the interceptors of a process share: one for all users, another one after a
// failure, a reset or a fork.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <vector>

#include "polypath/offload.h"
#include "support/in_child.hpp"

namespace polypath {
namespace {

using polypath::test::in_child;
using polypath::test::kChildMayAllocate;

/// While it lives no context can be made.
class WrongSetting {
 public:
  WrongSetting() { setenv("POLYPATH_ROUTES", "none such", 1); }
  ~WrongSetting() { unsetenv("POLYPATH_ROUTES"); }
  WrongSetting(const WrongSetting&) = delete;
  WrongSetting& operator=(const WrongSetting&) = delete;
};

/// One user.
class Use {
 public:
  Use() { status = polypath_offload_acquire_context(&context); }
  ~Use() { release(); }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

  void release() {
    polypath_offload_release_context(context);
    context = nullptr;
  }
  /// Whether the context answers.
  [[nodiscard]] bool works() const {
    polypath_thresholds thresholds{};
    return polypath_split_thresholds(context, &thresholds) == POLYPATH_SUCCESS;
  }

  polypath_context* context = nullptr;
  polypath_status status = POLYPATH_SUCCESS;
};

std::size_t thread_count() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
    ++count;
  return count;
}

class SharedContext : public testing::Test {
 protected:
  ~SharedContext() override { polypath_offload_retire_context(); }
};

TEST_F(SharedContext, AllUsers_HaveTheSame) {
  const Use first;
  ASSERT_EQ(first.status, POLYPATH_SUCCESS) << polypath_last_error();
  const WrongSetting wrong;
  const Use second;
  EXPECT_EQ(second.context, first.context);
  EXPECT_TRUE(second.works());
}

TEST_F(SharedContext, ManyThreads_HaveTheSame) {
  std::array<Use*, 16> uses{};
  {
    std::vector<std::jthread> threads;
    for (Use*& use : uses) threads.emplace_back([&use] { use = new Use; });
  }
  for (const Use* const use : uses) {
    EXPECT_NE(use->context, nullptr);
    EXPECT_EQ(use->context, uses[0]->context);
    EXPECT_TRUE(use->works());
  }
  for (const Use* const use : uses) delete use;
}

TEST_F(SharedContext, WithoutUsers_Stays) {
  Use().release();
  const WrongSetting wrong;
  EXPECT_EQ(Use().status, POLYPATH_SUCCESS) << polypath_last_error();
}

TEST_F(SharedContext, Failure_NextAcquireTriesAgain) {
  {
    const WrongSetting wrong;
    Use failed;
    EXPECT_EQ(failed.status, POLYPATH_INVALID_ARGUMENT);
    EXPECT_EQ(failed.context, nullptr);
  }
  EXPECT_EQ(Use().status, POLYPATH_SUCCESS) << polypath_last_error();
  EXPECT_EQ(polypath_offload_acquire_context(nullptr), POLYPATH_INVALID_ARGUMENT);
}

TEST_F(SharedContext, Retired_UsersKeepIt) {
  for (const bool is_old_first : {true, false}) {
    SCOPED_TRACE(is_old_first);
    const std::size_t before = thread_count();
    Use old;
    polypath_offload_retire_context();
    Use other;
    ASSERT_EQ(other.status, POLYPATH_SUCCESS) << polypath_last_error();
    EXPECT_NE(other.context, old.context);
    EXPECT_TRUE(old.works());
    (is_old_first ? old : other).release();
    EXPECT_TRUE((is_old_first ? other : old).works());
    (is_old_first ? other : old).release();
    polypath_offload_retire_context();
    EXPECT_EQ(thread_count(), before) << "a context is left";
  }
}

TEST_F(SharedContext, RetiredWithoutUsers_IsNotUsedAgain) {
  Use().release();
  polypath_offload_retire_context();
  const WrongSetting wrong;
  EXPECT_NE(Use().status, POLYPATH_SUCCESS);
}

TEST_F(SharedContext, Child_HasNotItsParents) {
  if (!kChildMayAllocate) GTEST_SKIP() << "the sanitizer's allocator may be locked in the child";
  Use use;
  EXPECT_EQ(0, in_child([&] {
              const WrongSetting wrong;
              polypath_context* const parents = use.context;
              if (Use().status == POLYPATH_SUCCESS) return 1;
              polypath_offload_retire_context();
              polypath_offload_release_context(parents);
              return 0;
            }));
  EXPECT_TRUE(use.works());
}

/// Another thread of the parent has the lock, or is making a context.
TEST_F(SharedContext, ForkAtAnyTime_IsNoHang) {
  if (!kChildMayAllocate) GTEST_SKIP() << "the sanitizer's allocator may be locked in the child";
  Use().release();  // it sets POLYPATH_NODE once, and a child could find the environment locked
  std::atomic<bool> is_done{false};
  std::jthread other([&] {
    while (!is_done) {
      Use().release();
      polypath_offload_retire_context();
    }
  });
  for (int i = 0; i < 50; ++i)
    EXPECT_EQ(0, in_child([] {
                alarm(60);
                const WrongSetting wrong;
                return Use().status != POLYPATH_SUCCESS ? 0 : 1;
              }));
  is_done = true;
}

}  // namespace
}  // namespace polypath
