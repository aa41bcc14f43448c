#include "tune/profile.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/error.hpp"
#include "topology/node_file.hpp"
#include "tune/profile_update.hpp"

namespace polypath {
namespace {

namespace fs = std::filesystem;

class ProfileTest : public testing::Test {
 protected:
  ProfileTest() {
    std::string name = testing::TempDir() + "profile.XXXXXX";
    folder_ = mkdtemp(name.data());
    file_ = profile_file(folder_ / "cache", "ab12-x");
    profile_ = make_profile(read_node_file(fs::path(POLYPATH_NODE_FILES) / "narval.toml"), "ab12-x",
                            "580.65 \"beta\"");
    profile_.node.links.front().gbps = 91.2345678901;
  }
  ~ProfileTest() override { fs::remove_all(folder_); }

  void save() { ASSERT_TRUE(save_profile(file_, profile_, &why_)) << why_; }

  void replace(const std::string& old_text, const std::string& new_text) {
    std::stringstream text;
    text << std::ifstream(file_).rdbuf();
    std::string content = text.str();
    const auto at = content.find(old_text);
    ASSERT_NE(at, std::string::npos) << content;
    content.replace(at, old_text.size(), new_text);
    std::ofstream(file_) << content;
  }

  void expect_refused(const std::string& reason) {
    EXPECT_EQ(load_profile(file_, "ab12-x", &why_), std::nullopt);
    EXPECT_NE(why_.find(reason), std::string::npos) << why_;
    EXPECT_EQ(why_.find('\n'), std::string::npos) << why_;
  }

  fs::path folder_;
  fs::path file_;
  Profile profile_;
  std::string why_;
};

TEST_F(ProfileTest, ComesBackAsItWasSaved) {
  save();
  EXPECT_EQ(file_.filename(), "ab12-x.toml");
  const auto loaded = load_profile(file_, "ab12-x", &why_);
  ASSERT_TRUE(loaded) << why_;
  EXPECT_EQ(loaded->node, profile_.node);
  EXPECT_EQ(loaded->fingerprint, "ab12-x");
  EXPECT_EQ(loaded->driver, "580.65 \"beta\"");
  EXPECT_EQ(loaded->date, profile_.date);
  EXPECT_EQ(loaded->version, profile_.version);
}

TEST_F(ProfileTest, ProfileIsNodeFile) {
  save();
  EXPECT_EQ(read_node_file(file_), profile_.node);
}

TEST_F(ProfileTest, SavingAgain_ReplacesTheFile) {
  save();
  profile_.driver = "600";
  save();
  EXPECT_EQ(load_profile(file_, "ab12-x", &why_)->driver, "600");
  EXPECT_EQ(std::distance(fs::directory_iterator(file_.parent_path()), {}), 1);
}

TEST_F(ProfileTest, AbsentIsNoReason) {
  why_ = "left over";
  EXPECT_EQ(load_profile(file_, "ab12-x", &why_), std::nullopt);
  EXPECT_EQ(why_, "");
}

TEST_F(ProfileTest, OtherNode_IsRefused) {
  save();
  EXPECT_EQ(load_profile(file_, "cd34", &why_), std::nullopt);
  EXPECT_NE(why_.find("another node or driver"), std::string::npos) << why_;
  EXPECT_NE(why_.find(file_.string()), std::string::npos) << why_;
}

TEST_F(ProfileTest, NewerSchemaIsRefused) {
  save();
  replace("[profile]\n", "[profile]\nfuture = 1\n");
  expect_refused("future");
  replace("future = 1\n", "");
  // The reason names the schema even if other things in the file are new too.
  replace("schema = 4\nversion", "schema = 5\nfuture = 1\nversion");
  expect_refused("ab12-x.toml");
  expect_refused("schema: is 5, this library reads 4");
}

TEST_F(ProfileTest, OtherVersion_IsRefused) {
  profile_.version = "9.9.9";
  save();
  expect_refused("ab12-x.toml: is of version 9.9.9, this is ");
}

TEST_F(ProfileTest, BareFileName_IsInTheCurrentFolder) {
  const fs::path before = fs::current_path();
  fs::current_path(folder_);
  file_ = "bare.toml";
  EXPECT_TRUE(save_profile(file_, profile_, &why_)) << why_;
  EXPECT_TRUE(load_profile(file_, "ab12-x", &why_)) << why_;
  fs::current_path(before);
  EXPECT_TRUE(fs::exists(folder_ / "bare.toml"));
}

TEST_F(ProfileTest, DamagedIsRefused) {
  save();
  replace("gbps = ", "gbps = -");
  expect_refused("gbps");
  std::ofstream(file_) << "schema = ";
  expect_refused("ab12-x.toml:1");
  std::ofstream(file_) << "";
  expect_refused("missing");
}

TEST_F(ProfileTest, FolderInItsPlace_IsRefused) {
  fs::create_directories(file_);
  expect_refused("ab12-x.toml");
  EXPECT_FALSE(save_profile(file_, profile_, &why_));
  EXPECT_NE(why_.find("no regular file"), std::string::npos) << why_;
  EXPECT_EQ(std::distance(fs::directory_iterator(file_.parent_path()), {}), 1);
}

TEST_F(ProfileTest, IrregularFile_IsNeitherReadNorMoved) {
  fs::create_directories(file_.parent_path());
  const auto expect_untouched = [&](fs::file_type type) {
    expect_refused(file_.string() + ": is no regular file");
    EXPECT_FALSE(save_profile(file_, profile_, &why_));
    EXPECT_EQ(why_, unusable_reason(file_));
    EXPECT_FALSE(add_to_profile(file_, profile_, {}, &why_));
    EXPECT_EQ(why_, unusable_reason(file_));
    EXPECT_EQ(fs::symlink_status(file_).type(), type);
    EXPECT_EQ(std::distance(fs::directory_iterator(file_.parent_path()), {}), 1);
    fs::remove(file_);
  };
  ASSERT_EQ(mkfifo(file_.c_str(), 0600), 0);
  expect_untouched(fs::file_type::fifo);
  fs::create_directory(file_);
  expect_untouched(fs::file_type::directory);
  fs::create_symlink("/dev/null", file_);
  expect_untouched(fs::file_type::symlink);
  for (const fs::path& nowhere : {fs::path("nowhere.toml"), file_}) {
    fs::create_symlink(nowhere, file_);
    expect_untouched(fs::file_type::symlink);
  }
  // What was refused is kept in no place that is taken by such a thing.
  std::ofstream(file_) << "schema = ";
  fs::create_directory(file_.string() + ".refused");
  EXPECT_FALSE(add_to_profile(file_, profile_, {}, &why_));
  EXPECT_EQ(why_, unusable_reason(file_.string() + ".refused"));
  EXPECT_EQ(fs::file_size(file_), 9u);
}

TEST_F(ProfileTest, LinkToFile_IsRead) {
  save();
  fs::create_symlink(file_, folder_ / "link.toml");
  EXPECT_TRUE(load_profile(folder_ / "link.toml", "ab12-x", &why_)) << why_;
}

TEST_F(ProfileTest, FileInPlaceOfFolder_GivesReason) {
  std::ofstream(folder_ / "cache") << "";
  EXPECT_FALSE(save_profile(file_, profile_, &why_));
  EXPECT_NE(why_.find("cannot write"), std::string::npos) << why_;
}

TEST(ProfileFile, FingerprintsAreFileNames) {
  EXPECT_THROW(profile_file("/tmp", ""), InvalidArgument);
  EXPECT_THROW(profile_file("/tmp", "../x"), InvalidArgument);
}

TEST(ProfileDirectory, FollowsTheEnvironment) {
  const char* home = std::getenv("HOME");
  const std::string old_home = home != nullptr ? home : "";
  setenv("HOME", "/home/me", 1);
  unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(profile_directory(), "/home/me/.cache/polypath");
  setenv("XDG_CACHE_HOME", "/var/cache/me", 1);
  EXPECT_EQ(profile_directory(), "/var/cache/me/polypath");
  setenv("XDG_CACHE_HOME", "relative", 1);
  EXPECT_EQ(profile_directory(), "/home/me/.cache/polypath");
  unsetenv("XDG_CACHE_HOME");
  setenv("HOME", "", 1);
  EXPECT_EQ(profile_directory(), "");
  setenv("HOME", old_home.c_str(), 1);
}

}  // namespace
}  // namespace polypath
