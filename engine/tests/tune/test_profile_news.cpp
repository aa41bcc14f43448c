// What several processes find gets into one profile.
#include "tune/profile_update.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "base/log.hpp"
#include "topology/node_file.hpp"

namespace polypath {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;

TunedTransfer choice_of_size(std::uint64_t bytes, int slots = 0) {
  TunedTransfer entry;
  entry.pair = "gpu to gpu";
  entry.choice = {bytes, {{RouteKind::direct, 1, 1}}, slots};
  return entry;
}

TunedCollective collective_of_size(std::uint64_t bytes) {
  TunedCollective entry;
  entry.op = "allreduce";
  entry.ranks = "4 ranks";
  entry.bytes = bytes;
  entry.way.algorithm = "flat";
  entry.way.stages = 1;
  entry.way.blocks = 8;
  return entry;
}

TunedBackend backend_of_size(std::uint64_t bytes) {
  TunedBackend entry;
  entry.op = "post";
  entry.ranks = "4 ranks";
  entry.bytes = bytes;
  entry.backend = "polypath";
  entry.times = {{"polypath", 1}};
  entry.pairs = 1;
  return entry;
}

class ProfileNewsTest : public testing::Test {
 protected:
  ProfileNewsTest() {
    std::string name = testing::TempDir() + "news.XXXXXX";
    folder_ = mkdtemp(name.data());
    file_ = folder_ / "node.toml";
    set_log_level(LogLevel::off);
  }
  ~ProfileNewsTest() override { fs::remove_all(folder_); }

  /// What a process does that knows nothing but what it found.
  void add(const ProfileUpdate& news, double gbps = 90,
           std::chrono::milliseconds longest_wait = std::chrono::minutes(10)) const {
    Profile known = profile(gbps);
    known.tuned = news.tuned;
    known.collectives = news.collectives;
    known.backends = news.backends;
    std::string why;
    EXPECT_TRUE(add_to_profile(file_, known, news, &why, longest_wait)) << why;
  }
  [[nodiscard]] Profile profile(double gbps) const {
    Profile profile = make_profile(node_, "ab12", "580");
    profile.node.links.front().gbps = gbps;
    return profile;
  }
  [[nodiscard]] Profile now() const {
    std::string why;
    const auto loaded = load_profile(file_, "ab12", &why);
    EXPECT_TRUE(loaded) << why;
    return loaded.value_or(Profile{});
  }
  [[nodiscard]] std::vector<std::uint64_t> sizes_now() const {
    std::vector<std::uint64_t> sizes;
    for (const TunedTransfer& entry : now().tuned) sizes.push_back(entry.choice.bytes);
    return sizes;
  }

  Node node_ = read_node_file(fs::path(POLYPATH_NODE_FILES) / "narval.toml");
  fs::path folder_;
  fs::path file_;
};

TEST_F(ProfileNewsTest, EntriesOfOthers_Stay) {
  add({.tuned = {choice_of_size(4096)}});
  add({.collectives = {collective_of_size(4096)}});
  add({.backends = {backend_of_size(4096)}});
  add({.tuned = {choice_of_size(8192)},
       .collectives = {collective_of_size(8192)},
       .backends = {backend_of_size(8192)}});
  add({.tuned = {choice_of_size(4096, 2)}});
  EXPECT_THAT(sizes_now(), ElementsAre(4096, 8192));
  EXPECT_EQ(now().tuned.front().choice.slots, 2) << "found anew";
  EXPECT_EQ(now().collectives.size(), 2u);
  EXPECT_EQ(now().backends.size(), 2u);
}

TEST_F(ProfileNewsTest, OnlyLinkUpdates_ReplaceLinks) {
  add({.links = true}, 80);
  add({.tuned = {choice_of_size(4096)}}, 70);
  EXPECT_EQ(now().node.links.front().gbps, 80);
  add({.links = true}, 60);
  EXPECT_EQ(now().node.links.front().gbps, 60);
  EXPECT_THAT(sizes_now(), ElementsAre(4096));
}

TEST_F(ProfileNewsTest, ConcurrentEdit_Stays) {
  TunedTransfer edited = choice_of_size(4096, 3);
  edited.edited = true;
  add({.tuned = {edited}});
  add({.tuned = {choice_of_size(4096, 5)}});
  EXPECT_EQ(now().tuned.front().choice.slots, 3);
}

TEST_F(ProfileNewsTest, NoFile_AllKnownIsWritten) {
  Profile known = profile(90);
  known.tuned = {choice_of_size(4096), choice_of_size(8192)};
  std::string why;
  EXPECT_TRUE(add_to_profile(file_, known, {.tuned = {choice_of_size(8192)}}, &why)) << why;
  EXPECT_THAT(sizes_now(), ElementsAre(4096, 8192));
}

TEST_F(ProfileNewsTest, DamagedFile_IsKeptAside) {
  add({.tuned = {choice_of_size(4096)}});
  std::ofstream(file_) << "schema = ";
  add({.tuned = {choice_of_size(8192)}});
  EXPECT_THAT(sizes_now(), ElementsAre(8192));
  EXPECT_EQ(fs::file_size(file_.string() + ".refused"), 9u);
}

TEST_F(ProfileNewsTest, ManyAtOnceLoseNothingAndLeaveNothing) {
  constexpr std::uint64_t kWriters = 8;
  constexpr std::uint64_t kEach = 5;
  {
    std::vector<std::jthread> writers;
    for (std::uint64_t w = 0; w < kWriters; ++w)
      writers.emplace_back([&, w] {
        for (std::uint64_t i = 0; i < kEach; ++i)
          add({.tuned = {choice_of_size(4096 * (1 + w * kEach + i))}});
      });
  }
  EXPECT_EQ(sizes_now().size(), kWriters * kEach);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
}

TEST_F(ProfileNewsTest, HeldLock_DelaysWritersOnlyBriefly) {
  const int folder = open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_EQ(flock(folder, LOCK_EX), 0);
  add({.tuned = {choice_of_size(4096)}}, 90, std::chrono::milliseconds(50));
  EXPECT_THAT(sizes_now(), ElementsAre(4096));
  close(folder);
}

}  // namespace
}  // namespace polypath
