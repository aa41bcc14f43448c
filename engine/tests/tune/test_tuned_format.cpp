// Tuned choices in a profile: they come back as they were, edits are recognised, and what is
// damaged is refused whole, with a line that names the file.
#include "tune/profile.hpp"
#include "tune/tuned_transfer_profile.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/units.hpp"
#include "topology/node_file.hpp"

namespace polypath {

bool operator==(const TunedTransfer& a, const TunedTransfer& b) {
  return a.pattern == b.pattern && a.pair == b.pair && a.choice == b.choice &&
         a.executor == b.executor && a.native_gbps == b.native_gbps &&
         a.predicted_gbps == b.predicted_gbps && a.measured_gbps == b.measured_gbps &&
         a.tried == b.tried && a.edited == b.edited;
}

namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

/// One of each pattern, kind of route and executor.
std::vector<TunedTransfer> some_choices() {
  TunedTransfer first;
  first.pair = "gpu to gpu, nvlink x4, via 2 gpu, 1 host";
  first.choice = {64 * kMiB,
                  {{RouteKind::direct, .3456, 1},
                   {RouteKind::via_gpu, .3044, 9},
                   {RouteKind::via_gpu, .29, 8},
                   {RouteKind::via_host, .06, 4}},
                  6};
  first.native_gbps = 92.5;
  first.predicted_gbps = 253.75;
  first.measured_gbps = 251;
  first.tried = 33;
  TunedTransfer second = first;
  second.pattern = Pattern::both_ways;
  second.executor = ExecutorKind::graph;
  second.choice = native_choice(4 * kMiB);
  TunedTransfer third = first;
  third.pattern = Pattern::window;
  third.pair = "host to gpu, pcie x16, via 3 gpu, 0 host";
  third.choice.slots = 0;
  return {first, second, third};
}

class TunedFormatTest : public testing::Test {
 protected:
  TunedFormatTest() {
    std::string name = testing::TempDir() + "tuned.XXXXXX";
    folder_ = mkdtemp(name.data());
    file_ = folder_ / "node.toml";
    Profile profile = make_profile(read_node_file(fs::path(POLYPATH_NODE_FILES) / "narval.toml"),
                                   "ab12", "580.65");
    profile.tables.table<TunedTransfer>() = ProfileTable(some_choices());
    std::string why;
    EXPECT_TRUE(save_profile(file_, profile, &why)) << why;
    std::stringstream text;
    text << std::ifstream(file_).rdbuf();
    text_ = text.str();
  }
  ~TunedFormatTest() override { fs::remove_all(folder_); }

  /// The choices of the file with its first `old_text` replaced; `why_` says why there are none.
  std::vector<TunedTransfer> choices_with(const std::string& old_text,
                                          const std::string& new_text) {
    std::string changed = text_;
    const auto at = changed.find(old_text);
    EXPECT_NE(at, std::string::npos) << old_text;
    changed.replace(at, old_text.size(), new_text);
    return choices_of(changed);
  }

  std::vector<TunedTransfer> choices_of(const std::string& text) {
    std::ofstream(file_) << text;
    const auto loaded = load_profile(file_, "ab12", &why_);
    EXPECT_EQ(loaded.has_value(), why_.empty());
    EXPECT_EQ(why_.find('\n'), std::string::npos) << "one line: " << why_;
    return loaded ? loaded->tables.table<TunedTransfer>().entries() : std::vector<TunedTransfer>();
  }

  fs::path folder_;
  fs::path file_;
  std::string text_;
  std::string why_;
};

TEST_F(TunedFormatTest, ComesBackAsItWas) {
  EXPECT_EQ(choices_of(text_), some_choices()) << why_;
  EXPECT_EQ(why_, "");
}

TEST_F(TunedFormatTest, LooksLikeThis) {
  EXPECT_EQ(ProfileFormat<TunedTransfer>::format(some_choices()[0]),
            "[[tuned]]\n"
            "pattern = \"one way\"\n"
            "pair = \"gpu to gpu, nvlink x4, via 2 gpu, 1 host\"\n"
            "bytes = 67108864\n"
            "executor = \"stream\"\n"
            "routes = [\"direct\", \"gpu\", \"gpu\", \"host\"]\n"
            "shares = [0.3456, 0.3044, 0.2900, 0.0600]\n"
            "chunks = [1, 9, 8, 4]\n"
            "slots = 6\n"
            "native_gbps = 92.50\n"
            "predicted_gbps = 253.75\n"
            "measured_gbps = 251.00\n"
            "tried = 33\n"
            "digest = " +
                std::to_string(digest(some_choices()[0])) + "\n");
}

TEST_F(TunedFormatTest, SharesThatWereRoundedAreNoEdit) {
  TunedTransfer entry = some_choices()[0];
  entry.choice.routes[0].share = 1.0 / 3;
  entry.choice.routes[1].share = 1.0 / 3 - .01666666;
  entry.choice.routes[2].share = 1.0 / 3 - .04333334;
  const auto choices = choices_of(text_ + "\n" + ProfileFormat<TunedTransfer>::format(entry));
  ASSERT_EQ(choices.size(), 4u) << why_;
  EXPECT_FALSE(choices[3].edited);
  EXPECT_NEAR(choices[3].choice.routes[0].share, 1.0 / 3, .00005);
}

TEST_F(TunedFormatTest, EditsAreRecognised) {
  for (const auto& [old_text, new_text] : std::vector<std::pair<std::string, std::string>>{
           {"shares = [0.3456, 0.3044", "shares = [0.3556, 0.2944"},
           {"chunks = [1, 9", "chunks = [1, 12"},
           {"slots = 6", "slots = 3"},
           {"executor = \"stream\"", "executor = \"graph\""},
           {"bytes = 67108864", "bytes = 33554432"},
           {"pattern = \"one way\"", "pattern = \"window\""},
           {"digest = ", "# digest = "},
       }) {
    const auto choices = choices_with(old_text, new_text);
    ASSERT_EQ(choices.size(), 3u) << why_;
    EXPECT_TRUE(choices[0].edited) << new_text;
    EXPECT_FALSE(choices[1].edited) << new_text;
    EXPECT_FALSE(choices[2].edited) << new_text;
  }
}

TEST_F(TunedFormatTest, EditStaysAnEditWhenSavedAgain) {
  auto choices = choices_with("slots = 6", "slots = 3");
  ASSERT_EQ(choices.size(), 3u) << why_;
  EXPECT_THAT(ProfileFormat<TunedTransfer>::format(choices[0]), testing::Not(HasSubstr("digest")));
  const auto again =
      choices_with("[end]", ProfileFormat<TunedTransfer>::format(choices[0]) + "[end]");
  ASSERT_EQ(again.size(), 4u) << why_;
  EXPECT_EQ(again[3], choices[0]);
}

TEST_F(TunedFormatTest, HandWrittenEntry_NeedsOnlyPlanKeys) {
  const auto choices = choices_of(text_ +
                                  "[[tuned]]\npattern = \"one way\"\npair = \"mine\"\n"
                                  "bytes = 1048576\nexecutor = \"graph\"\n"
                                  "routes = [\"direct\", \"gpu\"]\nshares = [0.5, 0.5]\n");
  ASSERT_EQ(choices.size(), 4u) << why_;
  EXPECT_TRUE(choices[3].edited);
  EXPECT_EQ(choices[3].choice.routes[1].chunks, 1);
  EXPECT_EQ(choices[3].choice.slots, 0);
}

TEST_F(TunedFormatTest, WrongEntry_IsNamedAndNothingIsLoaded) {
  struct Row {
    const char* old_text;
    const char* new_text;
    const char* reason;
  };
  for (const auto& [old_text, new_text, reason] : {
           Row{"pattern = \"window\"", "pattern = \"sometimes\"", "both ways"},
           Row{"executor = \"graph\"", "executor = \"magic\"", "\"stream\" or \"graph\""},
           Row{"\"host\"]", "\"sea\"]", "direct, gpu, host"},
           Row{"routes = [\"direct\", \"gpu\", ", "routes = [\"direct\", ", "one number for each"},
           Row{"shares = [0.3456", "shares = [0.9456", "add up to 1.600 instead of 1"},
           Row{"shares = [0.3456", "shares = [-0.3456", "shares"},
           Row{"shares = [0.3456", "shares = [nan", "shares"},
           Row{"chunks = [1, 9", "chunks = [1, 0", "chunks"},
           Row{"chunks = [1, 9, ", "chunks = [1, ", "list of 3"},
           Row{"slots = 6", "slots = 65", "0 to 64"},
           Row{"slots = 6", "slots = \"six\"", "slots"},
           Row{"bytes = 67108864", "bytes = 1", "bytes"},
           Row{"tried = 33", "tried = -1", "tried"},
           Row{"tried = 33", "tries = 33", "tries"},
           Row{"pair = \"host", "pear = \"host", "'pair' is missing"},
           Row{"measured_gbps = 251.00", "measured_gbps = inf", "measured_gbps"},
           Row{"[[tuned]]", "[tuned]", "tuned"},
       }) {
    EXPECT_TRUE(choices_with(old_text, new_text).empty()) << new_text;
    EXPECT_THAT(why_, AllOf(HasSubstr(file_.string() + ":"), HasSubstr(reason))) << new_text;
  }
}

TEST_F(TunedFormatTest, CutShortAnywhereNothingIsLoaded) {
  const auto end = text_.find("[end]");
  ASSERT_NE(end, std::string::npos);
  // Each byte of the last entry, and each line of the rest.
  const auto last_entry = text_.rfind("[[tuned]]");
  for (std::size_t at = 0; at <= end; ++at) {
    if (at < last_entry && text_[at] != '\n') continue;
    EXPECT_TRUE(choices_of(text_.substr(0, at)).empty()) << "cut at " << at;
    EXPECT_THAT(why_, HasSubstr(file_.string())) << "cut at " << at;
  }
}

TEST_F(TunedFormatTest, ProfileIsStillNodeFile) {
  EXPECT_EQ(read_node_file(file_), read_node_file(fs::path(POLYPATH_NODE_FILES) / "narval.toml"));
}

}  // namespace
}  // namespace polypath
