// Tuned collectives in a profile: they come back as they were, edits are recognised, and what is
// damaged is refused whole, with a line that names the file.
#include "collectives/collective_profile.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "collectives/plan/algorithm.hpp"
#include "topology/node_file.hpp"
#include "tune/profile.hpp"

namespace polypath {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

std::vector<TunedCollective> some_collectives() {
  return {{.op = "allreduce",
           .ranks = "4 ranks, nvlink x4",
           .bytes = 1 << 20,
           .way = {.algorithm = "flat", .stages = 2, .blocks = 64, .tile_bytes = 16384, .lag = 3},
           .planned_us = 29.25,
           .us = 22.5,
           .tried = 17},
          {.op = "allreduce",
           .ranks = "4 ranks, 4 by xbus, 2 by nvlink x3, islands 0 1 | 2 3",
           .bytes = 64 << 20,
           .way = {.algorithm = "hierarchical", .lanes = 2, .chunk_bytes = 1 << 20},
           .planned_us = 100,
           .us = 90,
           .tried = 3},
          {.op = "all_to_all",
           .ranks = "2 ranks, nvswitch x18",
           .bytes = 65536,
           .way = {.algorithm = "cells", .stages = 1, .blocks = 8},
           .planned_us = 6,
           .us = 6,
           .tried = 5}};
}

class CollectiveFormatTest : public testing::Test {
 protected:
  CollectiveFormatTest() {
    std::string name = testing::TempDir() + "collectives.XXXXXX";
    folder_ = mkdtemp(name.data());
    file_ = folder_ / "node.toml";
    Profile profile = make_profile(read_node_file(fs::path(POLYPATH_NODE_FILES) / "narval.toml"),
                                   "ab12", "580.65");
    profile.tables.table<TunedCollective>() = ProfileTable(some_collectives());
    std::string why;
    EXPECT_TRUE(save_profile(file_, profile, &why)) << why;
    std::stringstream text;
    text << std::ifstream(file_).rdbuf();
    text_ = text.str();
  }
  ~CollectiveFormatTest() override { fs::remove_all(folder_); }

  /// Entries of the file with its first `old_text` replaced; `why_` says why there are none.
  std::vector<TunedCollective> found_with(const std::string& old_text,
                                          const std::string& new_text) {
    std::string changed = text_;
    const auto at = changed.find(old_text);
    EXPECT_NE(at, std::string::npos) << old_text;
    changed.replace(at, old_text.size(), new_text);
    return found_in(changed);
  }

  std::vector<TunedCollective> found_in(const std::string& text, const char* fingerprint = "ab12") {
    std::ofstream(file_) << text;
    const auto loaded = load_profile(file_, fingerprint, &why_);
    EXPECT_EQ(loaded.has_value(), why_.empty());
    EXPECT_EQ(why_.find('\n'), std::string::npos) << "one line: " << why_;
    return loaded ? loaded->tables.table<TunedCollective>().entries()
                  : std::vector<TunedCollective>();
  }

  fs::path folder_;
  fs::path file_;
  std::string text_;
  std::string why_;
};

TEST_F(CollectiveFormatTest, ComesBackAsItWas) {
  EXPECT_EQ(found_in(text_), some_collectives()) << why_;
  EXPECT_EQ(read_collectives(text_), some_collectives());
  EXPECT_EQ(read_node_file(file_), read_node_file(fs::path(POLYPATH_NODE_FILES) / "narval.toml"));
}

TEST_F(CollectiveFormatTest, LooksLikeThis) {
  EXPECT_EQ(ProfileFormat<TunedCollective>::format(some_collectives()[0]),
            "[[collective]]\n"
            "op = \"allreduce\"\n"
            "ranks = \"4 ranks, nvlink x4\"\n"
            "bytes = 1048576\n"
            "algorithm = \"flat\"\n"
            "stages = 2\n"
            "blocks = 64\n"
            "tile_bytes = 16384\n"
            "lag = 3\n"
            "planned_us = 29.25\n"
            "us = 22.50\n"
            "tried = 17\n"
            "digest = " +
                std::to_string(digest(some_collectives()[0])) + "\n");
}

TEST_F(CollectiveFormatTest, EditsAreRecognised) {
  for (const auto& [old_text, new_text] : std::vector<std::pair<std::string, std::string>>{
           {"op = \"allreduce\"", "op = \"reduce\""},
           {"ranks = \"4", "ranks = \"3"},
           {"bytes = 1048576", "bytes = 2097152"},
           {"algorithm = \"flat\"", "algorithm = \"relayed\""},
           {"stages = 2", "stages = 1"},
           {"blocks = 64", "blocks = 96"},
           {"tile_bytes = 16384", "tile_bytes = 32768"},
           {"lag = 3", "lag = 2"},
           {"digest = ", "# digest = "},
       }) {
    const auto entries = found_with(old_text, new_text);
    ASSERT_EQ(entries.size(), 3u) << why_;
    EXPECT_TRUE(entries[0].edited) << new_text;
    EXPECT_FALSE(entries[1].edited) << new_text;
    EXPECT_FALSE(entries[2].edited) << new_text;
    EXPECT_THAT(ProfileFormat<TunedCollective>::format(entries[0]),
                testing::Not(HasSubstr("digest")));
  }
  for (const auto& [old_text, new_text] : std::vector<std::pair<std::string, std::string>>{
           {"lanes = 2", "lanes = 1"}, {"chunk_bytes = 1048576", "chunk_bytes = 1048577"}})
    EXPECT_TRUE(found_with(old_text, new_text).at(1).edited) << new_text;
}

TEST_F(CollectiveFormatTest, EveryAlgorithmThatPlansTake_CanBeRead) {
  for (const Algorithm algorithm : kAlgorithms) {
    if (algorithm == Algorithm::none || algorithm == Algorithm::ring) continue;
    TunedCollective entry = some_collectives()[0];
    entry.way = {.algorithm = std::string(to_string(algorithm))};
    if (runs_by_kernels(algorithm))
      entry.way.stages = entry.way.blocks = 2;
    else
      entry.way.chunk_bytes = 1 << 20;
    const std::vector<TunedCollective> all{entry};
    EXPECT_EQ(read_collectives(ProfileFormat<TunedCollective>::format(entry)), all)
        << entry.way.algorithm;
  }
}

TEST_F(CollectiveFormatTest, HandWrittenEntry_NeedsOnlyPlanKeys) {
  const auto entries = found_in(text_ +
                                "[[collective]]\nop = \"reduce\"\nranks = \"mine\"\n"
                                "bytes = 4096\nalgorithm = \"cells\"\nstages = 1\nblocks = 2\n");
  ASSERT_EQ(entries.size(), 4u) << why_;
  EXPECT_TRUE(entries[3].edited);
  EXPECT_EQ(entries[3].us, 0);
}

TEST_F(CollectiveFormatTest, WrongEntry_IsNamedAndNothingIsLoaded) {
  struct Row {
    const char* old_text;
    const char* new_text;
    const char* reason;
  };
  for (const auto& [old_text, new_text, reason] : {
           Row{"op = \"all_to_all\"", "op = \"gossip\"", "must be one of allreduce"},
           Row{"algorithm = \"flat\"", "algorithm = \"magic\"",
               "must be one of cells, lines, flat"},
           Row{"algorithm = \"flat\"", "algorithm = \"ring\"", "must be one of cells, lines, flat"},
           Row{"stages = 2", "stages = 3", "1 to 2"},
           Row{"stages = 2", "", "'stages' is missing"},
           Row{"blocks = 64", "blocks = 0", "1 to 1024"},
           Row{"blocks = 64", "blocks = \"all\"", "blocks"},
           Row{"tile_bytes = 16384", "tile_bytes = -1", "tile_bytes"},
           Row{"lag = 3", "lag = 65", "0 to 64"},
           Row{"blocks = 64", "blocks = 64\nchunk_bytes = 4096", "chunk_bytes"},
           Row{"lanes = 2", "lanes = 65", "0 to 64"},
           Row{"chunk_bytes = 1048576", "chunk_bytes = 1", "chunk_bytes"},
           Row{"chunk_bytes = 1048576", "", "'chunk_bytes' is missing"},
           Row{"bytes = 1048576", "bytes = 0", "bytes"},
           Row{"us = 22.50", "us = inf", "us"},
           Row{"tried = 17", "tried = -1", "tried"},
           Row{"ranks = \"4", "rank = \"4", "'ranks' is missing"},
           Row{"[[collective]]", "[collective]", "collective"},
       }) {
    EXPECT_TRUE(found_with(old_text, new_text).empty()) << new_text;
    EXPECT_THAT(why_, AllOf(HasSubstr(file_.string() + ":"), HasSubstr(reason))) << new_text;
  }
}

TEST_F(CollectiveFormatTest, OtherNodesProfile_IsRefused) {
  EXPECT_TRUE(found_in(text_, "cd34").empty());
  EXPECT_THAT(why_, HasSubstr("was measured on another node or driver (ab12, this is cd34)"));
}

TEST_F(CollectiveFormatTest, CutShortAnywhereNothingIsLoaded) {
  const auto end = text_.find("[end]");
  ASSERT_NE(end, std::string::npos);
  for (std::size_t at = text_.rfind("[[collective]]"); at <= end; ++at) {
    EXPECT_TRUE(found_in(text_.substr(0, at)).empty()) << "cut at " << at;
    EXPECT_THAT(why_, HasSubstr(file_.string())) << "cut at " << at;
  }
}

TEST_F(CollectiveFormatTest, OlderProfile_HasNoEntries) {
  const std::string before = text_.substr(0, text_.find("[[collective]]")) + "[end]\n";
  for (const char* const schema : {"schema = 2", "schema = 3"}) {
    std::string old = before;
    old.replace(old.find("schema = 4"), 10, schema);
    EXPECT_TRUE(found_in(old).empty());
    EXPECT_EQ(why_, "");
  }
}

}  // namespace
}  // namespace polypath
