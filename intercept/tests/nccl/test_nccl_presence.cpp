// Which ranks show themselves, next to children that a program forks.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "nccl/advertisement.hpp"

namespace polypath::nccl {
namespace {

CommKey new_key() {
  const std::array name{getpid(), 4711};
  return key_of(name.data(), sizeof name);
}

TEST(NcclPresence, RanksAreCounted) {
  const CommKey key = new_key();
  const Advertisement own(key, 0);
  ASSERT_TRUE(own.is_shown());
  EXPECT_EQ(own.count(3), 1);
  {
    const Advertisement other(key, 2);
    EXPECT_EQ(own.count(3), 2);
    EXPECT_EQ(other.lowest(3), 0);
    EXPECT_FALSE(Advertisement(key, 2).is_shown());
  }
  EXPECT_EQ(own.count(3), 1);
}

TEST(NcclPresence, ForkedChild_ShowsNoRank) {
  const CommKey key = new_key();
  const Advertisement own(key, 0);
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  pid_t child = 0;
  {
    const Advertisement other(key, 1);
    child = fork();
    if (child == 0) {
      // Until its parent has looked.
      close(ends[1]);
      char byte = 0;
      _exit(read(ends[0], &byte, 1) == 0 ? 0 : 1);
    }
    EXPECT_EQ(own.count(2), 2);
  }
  EXPECT_EQ(own.count(2), 1);
  close(ends[1]);
  close(ends[0]);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace polypath::nccl
