// What several processes find gets into one profile.
#include "tune/profile_update.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/log.hpp"
#include "topology/node_file.hpp"
#include "trial_entry.hpp"
#include "tune/tuned_transfer_profile.hpp"

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

template <typename Entry>
ProfileUpdate news_of(const std::vector<Entry>& entries) {
  ProfileUpdate news;
  news.tables.table<Entry>() = ProfileTable<Entry>(entries);
  return news;
}
ProfileUpdate news_of(const TunedTransfer& entry) { return news_of(std::vector{entry}); }

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
    known.tables = news.tables;
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
    const Profile profile_now = now();
    for (const TunedTransfer& entry : profile_now.tables.table<TunedTransfer>().entries())
      sizes.push_back(entry.choice.bytes);
    return sizes;
  }

  Node node_ = read_node_file(fs::path(POLYPATH_NODE_FILES) / "narval.toml");
  fs::path folder_;
  fs::path file_;
};

TEST_F(ProfileNewsTest, EntriesOfOthers_Stay) {
  add(news_of(choice_of_size(4096)));
  add(news_of<TrialEntry>({{"a", 1}}));
  ProfileUpdate both = news_of(choice_of_size(8192));
  both.tables.table<TrialEntry>().put({"b", 2});
  add(both);
  add(news_of(choice_of_size(4096, 2)));
  EXPECT_THAT(sizes_now(), ElementsAre(4096, 8192));
  EXPECT_EQ(now().tables.table<TunedTransfer>().entries().front().choice.slots, 2) << "found anew";
  EXPECT_THAT(now().tables.table<TrialEntry>().entries(),
              ElementsAre(TrialEntry{"a", 1}, TrialEntry{"b", 2}));
}

TEST_F(ProfileNewsTest, UnknownTable_IsRefusedByName) {
  add(news_of<TrialEntry>({{"a", 1}}));
  std::stringstream text;
  text << std::ifstream(file_).rdbuf();
  std::string changed = text.str();
  changed.replace(changed.find("[[trial]]"), 9, "[[trail]]");
  std::ofstream(file_) << changed;
  std::string why;
  EXPECT_FALSE(load_profile(file_, "ab12", &why));
  EXPECT_THAT(why, testing::HasSubstr("trail: is not a known key"));
  EXPECT_EQ(read_node_file(file_), profile(90).node) << "as a node, its tables do not matter";
}

TEST_F(ProfileNewsTest, OnlyLinkUpdates_ReplaceLinks) {
  add({.links = true}, 80);
  add(news_of(choice_of_size(4096)), 70);
  EXPECT_EQ(now().node.links.front().gbps, 80);
  add({.links = true}, 60);
  EXPECT_EQ(now().node.links.front().gbps, 60);
  EXPECT_THAT(sizes_now(), ElementsAre(4096));
}

TEST_F(ProfileNewsTest, ConcurrentEdit_Stays) {
  TunedTransfer edited = choice_of_size(4096, 3);
  edited.edited = true;
  add(news_of(edited));
  add(news_of(choice_of_size(4096, 5)));
  EXPECT_EQ(now().tables.table<TunedTransfer>().entries().front().choice.slots, 3);
}

TEST_F(ProfileNewsTest, NoFile_AllKnownIsWritten) {
  Profile known = profile(90);
  known.tables = news_of<TunedTransfer>({choice_of_size(4096), choice_of_size(8192)}).tables;
  std::string why;
  EXPECT_TRUE(add_to_profile(file_, known, news_of(choice_of_size(8192)), &why)) << why;
  EXPECT_THAT(sizes_now(), ElementsAre(4096, 8192));
}

TEST_F(ProfileNewsTest, DamagedFile_IsKeptAside) {
  add(news_of(choice_of_size(4096)));
  std::ofstream(file_) << "schema = ";
  add(news_of(choice_of_size(8192)));
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
          add(news_of(choice_of_size(4096 * (1 + w * kEach + i))));
      });
  }
  EXPECT_EQ(sizes_now().size(), kWriters * kEach);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
}

TEST_F(ProfileNewsTest, HeldLock_DelaysWritersOnlyBriefly) {
  const int folder = open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_EQ(flock(folder, LOCK_EX), 0);
  add(news_of(choice_of_size(4096)), 90, std::chrono::milliseconds(50));
  EXPECT_THAT(sizes_now(), ElementsAre(4096));
  close(folder);
}

}  // namespace
}  // namespace polypath
