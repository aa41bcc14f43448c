// How many contexts a process has on a node of eight GPUs: on each GPU that stages for it one of
// 536 MiB (exec/staging_policy.cpp), which it must not make for nothing.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "support/simulated_test.hpp"

namespace polypath::test {
namespace {

constexpr std::uint64_t kLoadBytes = 256 * kMiB;

/// What a launcher says of the ranks on this machine.
class Ranks {
 public:
  explicit Ranks(int count) { setenv("LOCAL_WORLD_SIZE", std::to_string(count).c_str(), 1); }
  ~Ranks() { unsetenv("LOCAL_WORLD_SIZE"); }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;
};

class RelayContexts : public SimulatedTest {
 protected:
  void SetUp() override {
    SimulatedTest::SetUp();
    if (IsSkipped()) return;
    if (gpus() != 8) GTEST_SKIP() << "of nodes of eight GPUs";
  }
  /// Two copies, of which the second takes all routes: whether it was split, and the GPUs that have
  /// contexts besides its ends.
  struct Done {
    bool is_split = false;
    std::set<int> relays;
  };
  Done copy_twice(MemoryId src, MemoryId dst, const OptionArguments& options = {}) {
    Context context(source(), options);
    Done done;
    const int own = src.is_gpu() ? src.index : dst.index;
    const Stream stream = stream_on(own);
    if (src.is_gpu() && dst.is_gpu()) context_of(dst.index);
    std::set<int> before;
    for (int gpu = 0; gpu < gpus(); ++gpu)
      if (context_active(gpu)) before.insert(gpu);
    for (int i = 0; i < 2; ++i) {
      const Payload data = payload({src, dst, kLoadBytes});
      const Traffic traffic(context);
      context.copy_async(data.transfer(stream.get()));
      synchronize(stream.get());
      EXPECT_TRUE(data.arrived());
      done.is_split = traffic.split() == 1;
      context.wait_prepared();
    }
    for (int gpu = 0; gpu < gpus(); ++gpu)
      if (context_active(gpu) && !before.contains(gpu)) done.relays.insert(gpu);
    return done;
  }
  [[nodiscard]] bool is_mesh() const {
    const auto link = node().find_link(MemoryId::gpu(0), MemoryId::gpu(1));
    return node().links[static_cast<std::size_t>(*link)].type == LinkType::nvlink;
  }
};

TEST_F(RelayContexts, LoadingRank_StagesOnItsSocket) {
  const Done in = copy_twice(MemoryId::host(0), MemoryId::gpu(0));
  EXPECT_TRUE(in.is_split);
  EXPECT_EQ(in.relays, (std::set{1, 2, 3}));
  const Done out = copy_twice(MemoryId::gpu(0), MemoryId::host(0));
  EXPECT_TRUE(out.is_split);
  EXPECT_EQ(out.relays, (std::set{1, 2, 3}));
}

TEST_F(RelayContexts, EightRanksThatLoad_TakeNone) {
  const Ranks ranks(8);
  for (int gpu = 0; gpu < gpus(); ++gpu) {
    const Done done = copy_twice(MemoryId::host(0), MemoryId::gpu(gpu));
    EXPECT_FALSE(done.is_split) << gpu;
    EXPECT_EQ(done.relays, std::set<int>{}) << gpu;
  }
}

TEST_F(RelayContexts, TwoRanks_DivideThem) {
  const Ranks ranks(2);
  std::set<int> both;
  std::size_t count = 0;
  for (const int gpu : {0, 1}) {
    const Done done = copy_twice(MemoryId::host(0), MemoryId::gpu(gpu));
    EXPECT_TRUE(done.is_split) << gpu;
    EXPECT_LE(done.relays.size(), 3u) << gpu;
    both.insert(done.relays.begin(), done.relays.end());
    count += done.relays.size();
  }
  EXPECT_EQ(both.size(), count) << "one GPU stages for both";
  EXPECT_FALSE(both.contains(0) || both.contains(1));
}

TEST_F(RelayContexts, ProgramThatAsksForRoutes_GetsThem) {
  const Ranks ranks(8);
  const Done done = copy_twice(MemoryId::host(0), MemoryId::gpu(0), {{"max_routes", "64"}});
  EXPECT_TRUE(done.is_split);
  EXPECT_EQ(done.relays, (std::set{1, 2, 3}));
}

TEST_F(RelayContexts, GpuToGpu_TakesMeshLinksOnly) {
  const Ranks ranks(8);
  const Done done = copy_twice(MemoryId::gpu(0), MemoryId::gpu(1));
  EXPECT_TRUE(done.is_split);
  EXPECT_EQ(done.relays, is_mesh() ? (std::set{2, 3, 4, 5, 6, 7}) : std::set<int>{});
}

}  // namespace
}  // namespace polypath::test
