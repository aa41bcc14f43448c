// Folders that cannot be used, or not any more, and what is said of them.
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "registry/records.hpp"
#include "registry_test.hpp"
#include "system_calls.hpp"

namespace polypath::test {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;
using BadFolder = RegistryTest;

/// What is said, once, by a registry that cannot be used; and that nothing else happens.
std::string refusal(const std::string& folder) {
  std::string why;
  const std::string output = said_by([&] {
    Registry registry(folder, kEager);
    EXPECT_FALSE(registry.publish(record_of(1, 1)));
    EXPECT_EQ(registry.start(flight_of(1)).value, 0u);
    registry.end({});
    EXPECT_FALSE(registry.find(handle_of(1)));
    EXPECT_TRUE(sizes_of_others(registry).empty());
    why = registry.why_unusable();
  });
  EXPECT_EQ(registry_lines(output), 1) << output;
  EXPECT_THAT(output, HasSubstr(why));
  return why;
}

TEST_F(BadFolder, SymbolicLink_IsNotFollowed) {
  const std::string real = folder() + ".real";
  ASSERT_EQ(mkdir(real.c_str(), 0700), 0);
  fs::create_symlink(real, folder());
  EXPECT_THAT(refusal(folder()), HasSubstr("is not a folder"));
  EXPECT_TRUE(fs::is_empty(real));
}

TEST_F(BadFolder, OpenToOthers_IsNotUsed) {
  for (const mode_t mode : {0710, 0701, 0750, 0777}) {
    fs::remove(folder());
    ASSERT_EQ(mkdir(folder().c_str(), 0700), 0);
    ASSERT_EQ(chmod(folder().c_str(), mode), 0);
    EXPECT_THAT(refusal(folder()), HasSubstr("open to other users"));
    EXPECT_TRUE(fs::is_empty(folder()));
  }
}

TEST_F(BadFolder, AnotherUsersFolderIsNotUsed) {
  ASSERT_EQ(mkdir(folder().c_str(), 0700), 0);
  if (chown(folder().c_str(), geteuid() + 1, getegid()) != 0)
    GTEST_SKIP() << "only root can give it away";
  EXPECT_THAT(refusal(folder()), HasSubstr("another user"));
  EXPECT_TRUE(fs::is_empty(folder()));
}

TEST_F(BadFolder, FailedCreation_IsReported) {
  EXPECT_THAT(refusal(folder() + "/in/none"), HasSubstr("No such file"));
  std::ofstream(folder()) << "a file";
  EXPECT_THAT(refusal(folder()), HasSubstr("is not a folder"));
  EXPECT_THAT(refusal(folder() + "/below"), HasSubstr("Not a directory"));
}

TEST_F(BadFolder, OpenedToOthersLater_IsLeft) {
  Registry registry(folder(), kEager);
  ASSERT_TRUE(registry.publish(record_of(1, 1)));
  ASSERT_EQ(chmod(folder().c_str(), 0755), 0);
  const std::string output = said_by([&] { EXPECT_FALSE(registry.find(handle_of(2))); });
  EXPECT_EQ(registry_lines(output), 1) << output;
  EXPECT_THAT(registry.why_unusable(), HasSubstr("open to other users"));
  EXPECT_TRUE(fs::is_empty(folder()));
}

TEST_F(BadFolder, NoSpace_LeavesNoFile) {
  no_room() = true;
  EXPECT_THAT(refusal(folder()), HasSubstr("No space"));
  no_room() = false;
  EXPECT_TRUE(fs::is_empty(folder()));
}

TEST_F(BadFolder, SpaceRunsOut_KeepsPublished) {
  Registry registry(folder(), kEager);
  ASSERT_TRUE(registry.publish(record_of(1, 1)));
  no_room() = true;
  const std::string output = said_by([&] {
    EXPECT_FALSE(registry.publish(record_of(2, 2)));
    EXPECT_FALSE(registry.publish(record_of(3, 3)));
    for (std::size_t flight = 0; flight <= kFlights; ++flight)
      EXPECT_EQ(registry.start(flight_of(1)).value, 0u);
  });
  no_room() = false;
  EXPECT_EQ(registry_lines(output), 1) << output;
  EXPECT_THAT(output, HasSubstr("No space"));
  fs::remove(file_of(getpid()));  // all that was told is told again
  EXPECT_TRUE(registry.publish(record_of(4, 4)));
  EXPECT_NE(registry.start(flight_of(5)).value, 0u);
  Child witness([&](const Steps&) {
    Registry own(folder(), kEager);
    return own.find(handle_of(1)) && !own.find(handle_of(2)) && own.find(handle_of(4)) &&
                   sizes_of_others(own) == std::vector<std::uint64_t>{5}
               ? 0
               : 1;
  });
  EXPECT_EQ(witness.result(), 0);
}

TEST_F(BadFolder, FileSizeLimit_IsReportedNotHit) {
  Child child([&](const Steps&) {
    const rlimit limit{.rlim_cur = kFileBytes - 1, .rlim_max = RLIM_INFINITY};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
    return refusal(folder()).find("RLIMIT_FSIZE") != std::string::npos ? 0 : 2;
  });
  EXPECT_EQ(child.result(), 0) << "or the signal SIGXFSZ";
}

TEST_F(BadFolder, NoDescriptors_KeepsKnownPeers) {
  Child first([&](const Steps& steps) {
    Registry own(folder(), kEager);
    own.start(flight_of(1));
    return steps.meet() ? 0 : 1;
  });
  ASSERT_TRUE(first.wait());
  Registry registry(folder(), kEager);
  ASSERT_EQ(sizes_of_others(registry), std::vector<std::uint64_t>{1});
  Child second([&](const Steps& steps) {
    Registry own(folder(), kEager);
    own.start(flight_of(2));
    return steps.meet() ? 0 : 1;
  });
  ASSERT_TRUE(second.wait());
  // The folder cannot be opened; not be read; the new file not be opened.
  for (const int openings : {0, 1, 2}) {
    openings_left() = openings;
    EXPECT_EQ(sizes_of_others(registry), std::vector<std::uint64_t>{1}) << openings;
    openings_left() = -1;
    EXPECT_THAT(files(), testing::SizeIs(3));
  }
  EXPECT_EQ(sizes_of_others(registry), (std::vector<std::uint64_t>{1, 2}));
}

TEST_F(BadFolder, OffIsSilent) {
  const std::string output = said_by([&] {
    Registry registry{std::string()};
    EXPECT_FALSE(registry.publish(record_of(1, 1)));
    EXPECT_EQ(registry.start(flight_of(1)).value, 0u);
    EXPECT_THAT(registry.why_unusable(), HasSubstr("off"));
  });
  EXPECT_EQ(output, "");
}

}  // namespace
}  // namespace polypath::test
