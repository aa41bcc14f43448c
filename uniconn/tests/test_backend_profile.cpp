// Measured backends: the choice of what was measured in turns; in a profile they come back as they
// were, edits are recognised, and what another version knows is kept.
#include "uniconn/backend_profile.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.hpp"
#include "topology/node_file.hpp"
#include "tune/profile.hpp"

namespace polypath {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

// ---- The choice ---------------------------------------------------------------------------------

/// The choice after nine turns of two backends. The second backend took `slow` us in `turns` of
/// them and 10 us in the others.
std::string choice_of(double first_us, int turns, double slow) {
  TunedBackend entry;
  std::vector<double> us;
  for (int turn = 0; turn < 9; ++turn) {
    us.push_back(first_us);
    us.push_back(turn < turns ? slow : 10);
  }
  choose_backend(entry, {"polypath", "gpuccl"}, us);
  return entry.backend;
}

TEST(TunedBackends, AnotherOneMustWinBeyondDoubt) {
  EXPECT_EQ(choice_of(12, 0, 0), "gpuccl");
  EXPECT_EQ(choice_of(12, 1, 50), "gpuccl") << "8 of 9 turns";
  EXPECT_EQ(choice_of(12, 2, 50), "polypath") << "7 of 9 turns";
  EXPECT_EQ(choice_of(10.11, 0, 0), "gpuccl");
  EXPECT_EQ(choice_of(10.09, 0, 0), "polypath") << "less than 1 %";
  EXPECT_EQ(choice_of(9, 0, 0), "polypath");
}

TEST(TunedBackends, ChoosesTheFastestWinner) {
  TunedBackend entry;
  choose_backend(entry, {"polypath", "gpuccl", "mpi"}, std::vector<double>{9, 7, 6, 90, 7, 5});
  EXPECT_EQ(entry.backend, "mpi");
  const std::vector<BackendTime> times{{"polypath", 90}, {"gpuccl", 7}, {"mpi", 6}};
  EXPECT_EQ(entry.times, times) << "medians; of two the larger";
  EXPECT_EQ(entry.pairs, 2);
  choose_backend(entry, {"mpi"}, std::vector<double>{1.234567});
  EXPECT_EQ(entry.backend, "mpi");
  EXPECT_EQ(entry.times.at(0).us, 1.23);
  EXPECT_THROW(choose_backend(entry, {}, {}), InvalidArgument);
  EXPECT_THROW(choose_backend(entry, {"mpi"}, {}), InvalidArgument);
  EXPECT_THROW(choose_backend(entry, {"mpi", "gpuccl"}, std::vector<double>{1, 2, 3}),
               InvalidArgument);
}

TEST(TunedBackends, KeepsOneEntryPerKey) {
  ProfileTable<TunedBackend> all;
  for (const char* const backend : {"mpi", "polypath"})
    for (const std::uint64_t bytes : {64, 128})
      all.put({.op = "post", .ranks = "2 ranks", .bytes = bytes, .backend = backend});
  ASSERT_EQ(all.entries().size(), 2u);
  EXPECT_EQ(all.find({.op = "post", .ranks = "2 ranks", .bytes = 128})->backend, "polypath");
  EXPECT_EQ(all.find({.op = "post", .ranks = "2 ranks", .bytes = 127}), nullptr);
  EXPECT_EQ(all.find({.op = "post", .ranks = "3 ranks", .bytes = 128}), nullptr);
  EXPECT_EQ(all.find({.op = "reduce", .ranks = "2 ranks", .bytes = 128}), nullptr);
}

// ---- In a profile -------------------------------------------------------------------------------

std::vector<TunedBackend> some_backends() {
  return {{.op = "post",
           .ranks = "4 ranks, nvlink x4",
           .bytes = 1 << 20,
           .backend = "gpuccl",
           .times = {{"polypath", 20.5}, {"gpuccl", 15.25}, {"mpi", 30}},
           .pairs = 9},
          {.op = "allreduce",
           .ranks = "2 ranks, nvlink x4",
           .bytes = 64,
           .backend = "polypath",
           .times = {{"polypath", 6.5}},
           .pairs = 1},
          // An entry that a later version wrote.
          {.op = "scan2",
           .ranks = "2 ranks, something",
           .bytes = 64,
           .backend = "rccl",
           .times = {{"polypath", 6.5}, {"rccl", 4}},
           .pairs = 9}};
}

class BackendFormatTest : public testing::Test {
 protected:
  BackendFormatTest() {
    std::string name = testing::TempDir() + "backends.XXXXXX";
    folder_ = mkdtemp(name.data());
    file_ = folder_ / "node.toml";
    Profile profile = make_profile(read_node_file(fs::path(POLYPATH_NODE_FILES) / "narval.toml"),
                                   "ab12", "580.65");
    profile.tables.table<TunedBackend>() = ProfileTable(some_backends());
    std::string why;
    EXPECT_TRUE(save_profile(file_, profile, &why)) << why;
    std::stringstream text;
    text << std::ifstream(file_).rdbuf();
    text_ = text.str();
  }
  ~BackendFormatTest() override { fs::remove_all(folder_); }

  std::vector<TunedBackend> found_with(const std::string& old_text, const std::string& new_text) {
    std::string changed = text_;
    const auto at = changed.find(old_text);
    EXPECT_NE(at, std::string::npos) << old_text;
    changed.replace(at, old_text.size(), new_text);
    return found_in(changed);
  }
  std::vector<TunedBackend> found_in(const std::string& text) {
    std::ofstream(file_) << text;
    const auto loaded = load_profile(file_, "ab12", &why_);
    EXPECT_EQ(loaded.has_value(), why_.empty());
    EXPECT_EQ(why_.find('\n'), std::string::npos) << "one line: " << why_;
    return loaded ? loaded->tables.table<TunedBackend>().entries() : std::vector<TunedBackend>();
  }

  fs::path folder_;
  fs::path file_;
  std::string text_;
  std::string why_;
};

TEST_F(BackendFormatTest, ComesBackAsItWas) {
  EXPECT_EQ(found_in(text_), some_backends()) << why_;
  EXPECT_EQ(read_node_file(file_), read_node_file(fs::path(POLYPATH_NODE_FILES) / "narval.toml"));
}

TEST_F(BackendFormatTest, LooksLikeThis) {
  EXPECT_EQ(ProfileFormat<TunedBackend>::format(some_backends()[0]),
            "[[comm]]\n"
            "op = \"post\"\n"
            "ranks = \"4 ranks, nvlink x4\"\n"
            "bytes = 1048576\n"
            "backend = \"gpuccl\"\n"
            "backends = [\"polypath\", \"gpuccl\", \"mpi\"]\n"
            "us = [20.50, 15.25, 30.00]\n"
            "pairs = 9\n"
            "digest = " +
                std::to_string(digest(some_backends()[0])) + "\n");
}

TEST_F(BackendFormatTest, EditsAreRecognised) {
  for (const auto& [old_text, new_text] : std::vector<std::pair<std::string, std::string>>{
           {"op = \"post\"", "op = \"reduce\""},
           {"ranks = \"4", "ranks = \"3"},
           {"bytes = 1048576", "bytes = 2097152"},
           {"backend = \"gpuccl\"", "backend = \"mpi\""},
           {"\"gpuccl\", \"mpi\"", "\"gpuccl\", \"gpushmem\""},
           {"us = [20.50", "us = [20.51"},
           {"digest = ", "# digest = "},
       }) {
    const auto entries = found_with(old_text, new_text);
    ASSERT_EQ(entries.size(), 3u) << why_;
    EXPECT_TRUE(entries[0].edited) << new_text;
    EXPECT_FALSE(entries[1].edited) << new_text;
    EXPECT_THAT(ProfileFormat<TunedBackend>::format(entries[0]), testing::Not(HasSubstr("digest")));
  }
}

TEST_F(BackendFormatTest, HandWrittenEntry_NeedsOnlyUsedKeys) {
  const auto entries = found_in(text_ +
                                "[[comm]]\nop = \"post\"\nranks = \"mine\"\nbytes = 4096\n"
                                "backend = \"mpi\"\n");
  ASSERT_EQ(entries.size(), 4u) << why_;
  EXPECT_TRUE(entries[3].edited);
  EXPECT_TRUE(entries[3].times.empty());
}

TEST_F(BackendFormatTest, WrongEntry_IsNamedAndNothingIsLoaded) {
  struct Row {
    const char* old_text;
    const char* new_text;
    const char* reason;
  };
  for (const auto& [old_text, new_text, reason] : {
           Row{"op = \"post\"", "op = \"\"", "not empty"},
           Row{"op = \"post\"", "op = \"Post!\"", "letters"},
           Row{"op = \"post\"", "", "'op' is missing"},
           Row{"backend = \"gpuccl\"", "", "'backend' is missing"},
           Row{"backend = \"gpuccl\"", "backend = \"N C\"", "letters"},
           Row{"ranks = \"4", "rank = \"4", "'ranks' is missing"},
           Row{"bytes = 1048576", "bytes = 0", "bytes"},
           Row{"us = [20.50, ", "us = [", "one number for each"},
           Row{"us = [20.50", "us = [-1", "us"},
           Row{"us = [20.50", "us = [inf", "us"},
           Row{"pairs = 9", "pairs = -1", "pairs"},
           Row{"pairs = 9", "pears = 9", "pears"},
           Row{"[[comm]]", "[comm]", "comm"},
       }) {
    EXPECT_TRUE(found_with(old_text, new_text).empty()) << new_text;
    EXPECT_THAT(why_, AllOf(HasSubstr(file_.string() + ":"), HasSubstr(reason))) << new_text;
  }
}

TEST_F(BackendFormatTest, CutShortAnywhereNothingIsLoaded) {
  const auto end = text_.find("[end]");
  for (std::size_t at = text_.rfind("[[comm]]"); at <= end; ++at) {
    EXPECT_TRUE(found_in(text_.substr(0, at)).empty()) << "cut at " << at;
    EXPECT_THAT(why_, HasSubstr(file_.string())) << "cut at " << at;
  }
}

TEST_F(BackendFormatTest, OlderProfile_HasNoEntries) {
  const std::string before = text_.substr(0, text_.find("[[comm]]")) + "[end]\n";
  for (const char* const schema : {"schema = 2", "schema = 3"}) {
    std::string old = before;
    old.replace(old.find("schema = 4"), 10, schema);
    EXPECT_TRUE(found_in(old).empty());
    EXPECT_EQ(why_, "");
  }
}

}  // namespace
}  // namespace polypath
