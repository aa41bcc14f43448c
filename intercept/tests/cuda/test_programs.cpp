// Programs that have nothing to do with CUDA, two shims at once, and a program with a dlsym of its
// own: all of them behave as they do without the shim.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "run_program.hpp"

namespace polypath::preload::test {
namespace {

const Environment kBare{{"LD_PRELOAD", ""}};
const Environment kUnderShim{
    {"LD_PRELOAD", POLYPATH_SHIM}, {"POLYPATH_STATS", "text"}, {"POLYPATH_LOG_LEVEL", "debug"}};

class Programs : public testing::TestWithParam<std::vector<std::string>> {};

TEST_P(Programs, SeeNoDifference) {
  const Outcome bare = run(GetParam(), kBare);
  const Outcome under = run(GetParam(), kUnderShim);
  EXPECT_EQ(bare.status, under.status);
  EXPECT_EQ(bare.out, under.out);
  EXPECT_EQ(bare.error, under.error);
}

INSTANTIATE_TEST_SUITE_P(
    , Programs,
    testing::Values(std::vector<std::string>{"true"}, std::vector<std::string>{"false"},
                    std::vector<std::string>{"bash", "-c", "echo out; echo error >&2; (exit 3)"},
                    std::vector<std::string>{"bash", "-c", "kill -9 $$"},
                    std::vector<std::string>{"ls", "/no/such/folder"},
                    std::vector<std::string>{"sh", "-c", "ls -ld / | sort | cat"},
                    std::vector<std::string>{
                        POLYPATH_PYTHON, "-c",
                        "import ctypes, sys; print(ctypes.CDLL(None).abs(-3)); sys.exit(5)"},
                    std::vector<std::string>{POLYPATH_PYTHON, "-c",
                                             "import ctypes\n"
                                             "try: ctypes.CDLL(None).cuMemcpyAsync\n"
                                             "except AttributeError as error: print(error)"}));

TEST(ProgramsWithoutCuda, DoNotLoadTheEngine) {
  const Outcome outcome = run({"cat", "/proc/self/maps"}, kUnderShim);
  EXPECT_NE(std::string::npos, outcome.out.find("libpolypath_preload.so"));
  EXPECT_EQ(std::string::npos, outcome.out.find("libpolypath.so"));
  EXPECT_EQ(std::string::npos, outcome.out.find("libstdc++"));
}

Environment with_variable(Environment environment, const char* name, const std::string& value) {
  environment[name] = value;
  return environment;
}

// The second is a copy in another folder, not the same file.
TEST(ProgramsUnderTwoShims, CallsAreCountedOnce) {
  const std::filesystem::path other =
      std::filesystem::path(POLYPATH_FAKE_SHIM).parent_path() / "other";
  std::filesystem::create_directories(other);
  const auto copy = other / "libpolypath_preload.so";
  std::filesystem::copy_file(POLYPATH_SHIM, copy,
                             std::filesystem::copy_options::overwrite_existing);
  for (const std::string& both :
       {POLYPATH_FAKE_SHIM + (":" + copy.string()), copy.string() + ":" + POLYPATH_FAKE_SHIM}) {
    const Outcome outcome = run({POLYPATH_CALLS_PROGRAM, "3", "2", "return"},
                                with_variable(kUnderShim, "LD_PRELOAD", both));
    EXPECT_EQ(7, outcome.status);
    const std::string line = "cuMemcpyHtoD_v2: 5 calls";
    const auto first = outcome.error.find(line);
    EXPECT_NE(std::string::npos, first) << outcome.error;
    EXPECT_EQ(std::string::npos, outcome.error.find(line, first + 1)) << outcome.error;
  }
}

TEST(ProgramsWithTheirOwnDlsym, GetWhatTheyAskFor) {
  const Outcome bare = run({POLYPATH_OWN_DLSYM_PROGRAM}, kBare);
  EXPECT_EQ(0, bare.status) << bare.out;
  const Outcome under =
      run({POLYPATH_OWN_DLSYM_PROGRAM}, with_variable(kUnderShim, "POLYPATH_STATS", ""));
  EXPECT_EQ(0, under.status);
  EXPECT_EQ(bare.out, under.out);
  EXPECT_EQ("", under.error);
}

TEST(ProgramsWithoutAnEngineBesideTheShim, RunOnTheDriver) {
  const std::filesystem::path lonely =
      std::filesystem::path(POLYPATH_FAKE_SHIM).parent_path() / "lonely";
  std::filesystem::create_directories(lonely);
  const auto copy = lonely / "libpolypath_preload.so";
  std::filesystem::copy_file(POLYPATH_SHIM, copy,
                             std::filesystem::copy_options::overwrite_existing);
  Environment environment{{"LD_PRELOAD", copy}};
  const std::vector<std::string> program{POLYPATH_CALLS_PROGRAM, "3", "2", "return"};
  const Outcome quiet = run(program, environment);
  EXPECT_EQ(7, quiet.status);
  EXPECT_EQ("", quiet.error);
  const Outcome outcome = run(program, with_variable(environment, "POLYPATH_LOG_LEVEL", "info"));
  EXPECT_EQ(7, outcome.status);
  EXPECT_TRUE(outcome.error.starts_with("polypath: info: copies stay the driver's: "));
  EXPECT_EQ(1, std::ranges::count(outcome.error, '\n'));
}

}  // namespace
}  // namespace polypath::preload::test
