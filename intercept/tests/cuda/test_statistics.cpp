// What a process under the shim writes at its end.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "run_program.hpp"

namespace polypath::preload::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class Statistics : public testing::Test {
 protected:
  Statistics() {
    std::string name = fs::temp_directory_path() / "polypath-statistics-XXXXXX";
    folder = mkdtemp(name.data());
  }
  ~Statistics() override { fs::remove_all(folder); }

  Outcome run_calls(const std::string& small, const std::string& large, const std::string& how,
                    const std::string& statistics, Environment more = {}) {
    more.insert({{"LD_PRELOAD", POLYPATH_FAKE_SHIM}, {"POLYPATH_STATS", statistics}});
    const Outcome outcome = run({POLYPATH_CALLS_PROGRAM, small, large, how}, more);
    EXPECT_EQ(7, outcome.status) << outcome.error;
    EXPECT_EQ("", outcome.out);
    return outcome;
  }
  [[nodiscard]] std::vector<json> read_all() const {
    std::vector<json> reports;
    for (const auto& file : fs::directory_iterator(folder)) {
      EXPECT_EQ(".json", file.path().extension());
      reports.push_back(json::parse(std::ifstream(file.path())));
    }
    return reports;
  }
  [[nodiscard]] std::string file(const char* name) const { return folder / name; }

  fs::path folder;
};

TEST_F(Statistics, CountCallsAndWhatBecameOfThem) {
  const Outcome outcome = run_calls("3", "2", "return", file("s.json"), {{"FAKE_ANSWER", "take"}});
  EXPECT_EQ("", outcome.error);
  const auto expected_file = folder / ("s." + std::to_string(outcome.pid) + ".json");
  ASSERT_TRUE(fs::exists(expected_file));
  const json report = json::parse(std::ifstream(expected_file));
  EXPECT_EQ(outcome.pid, report["pid"]);
  EXPECT_EQ(POLYPATH_CALLS_PROGRAM + std::string(" 3 2 return"), report["command"]);
  const json copies{
      {"calls", 5}, {"bytes", 3 * 1000 + 2 * (4 << 20)}, {"offloaded", 2}, {"issued", 2}};
  EXPECT_EQ((json{{"cuMemcpyHtoD_v2", copies}}), report["calls"]);
  EXPECT_EQ((json{{"exported", 0}, {"imported", 0}, {"closed", 0}, {"refused", 0}}),
            report["imports"]);
  EXPECT_EQ((json{{"fake", true}}), report["engine"]);
}

TEST_F(Statistics, TellWhatIsLeftToTheDriver) {
  run_calls("0", "4", "return", file("s.json"));
  const json report = read_all().at(0);
  EXPECT_EQ(4, report["calls"]["cuMemcpyHtoD_v2"]["offloaded"]);
  EXPECT_EQ(0, report["calls"]["cuMemcpyHtoD_v2"]["issued"]);
  const json rates = report["rates"];
  ASSERT_EQ(1U, rates.size());
  EXPECT_EQ("host to gpu", rates[0]["direction"]);
  EXPECT_EQ(4 << 20, rates[0]["bytes"]);
  EXPECT_EQ(false, rates[0]["issued"]);
  EXPECT_EQ(4, rates[0]["count"]);
  EXPECT_GT(rates[0]["gbps"], 0);
}

TEST_F(Statistics, HaveNoEngineWhereNothingWasLarge) {
  run_calls("3", "0", "return", file("s.json"));
  const json report = read_all().at(0);
  EXPECT_EQ(nullptr, report["engine"]);
  EXPECT_EQ(json::array(), report["rates"]);
}

// Many programs reset their GPU at their end.
TEST_F(Statistics, TellOfTheEngineThatAResetEnded) {
  run_calls("0", "1", "reset", file("s.json"));
  const json report = read_all().at(0);
  EXPECT_EQ(nullptr, report["engine"]);
  EXPECT_EQ(json::array({json{{"fake", true}}}), report["engines_before_resets"]);
  const Outcome outcome = run_calls("0", "1", "reset", "text");
  EXPECT_NE(std::string::npos, outcome.error.find("a fake report\n")) << outcome.error;
}

TEST_F(Statistics, GoWhereTheNameSays) {
  const auto pid = [](const Outcome& outcome) { return std::to_string(outcome.pid); };
  const Outcome marked = run_calls("1", "0", "return", file("a-%p-b.json"));
  EXPECT_TRUE(fs::exists(folder / ("a-" + pid(marked) + "-b.json")));
  const Outcome plain = run_calls("1", "0", "return", file("plain"));
  EXPECT_TRUE(fs::exists(folder / ("plain." + pid(plain))));
  fs::create_directory(folder / "with.dot");
  const Outcome dotted = run_calls("1", "0", "return", file("with.dot/plain"));
  EXPECT_TRUE(fs::exists(folder / "with.dot" / ("plain." + pid(dotted))));
}

TEST_F(Statistics, ComeAsLinesToo) {
  const Outcome outcome = run_calls("3", "2", "return", "text");
  EXPECT_TRUE(outcome.error.starts_with("polypath: process " + std::to_string(outcome.pid) + ": "));
  EXPECT_NE(std::string::npos,
            outcome.error.find("\n  cuMemcpyHtoD_v2: 5 calls, 8.0 MiB, 2 handed over, 0 issued"));
  EXPECT_NE(std::string::npos, outcome.error.find("\n  host to gpu, from 4 MiB, native copies: "));
  EXPECT_TRUE(outcome.error.ends_with("\na fake report\n"));
}

TEST_F(Statistics, Unset_WritesNothing) { EXPECT_EQ("", run_calls("3", "2", "return", "").error); }

TEST_F(Statistics, NoCalls_WritesNothing) {
  EXPECT_EQ("", run_calls("3", "2", "without-cuda", "text").error);
  EXPECT_EQ("", run_calls("0", "0", "return", "text").error);
}

TEST_F(Statistics, ExitInThread_WritesOnce) {
  run_calls("3", "2", "exit-in-thread", file("s.json"));
  const auto reports = read_all();
  ASSERT_EQ(1U, reports.size());
  EXPECT_EQ(5, reports[0]["calls"]["cuMemcpyHtoD_v2"]["calls"]);
}

TEST_F(Statistics, ChildWithoutCalls_WritesNothing) {
  run_calls("3", "2", "fork", file("s.json"));
  EXPECT_EQ(1U, read_all().size());
}

TEST_F(Statistics, ChildWithOwnCuda_HasItsOwn) {
  run_calls("1", "2", "before-fork", file("s.json"));
  const auto reports = read_all();
  ASSERT_EQ(2U, reports.size());
  EXPECT_NE(reports[0]["pid"], reports[1]["pid"]);
  for (const json& report : reports) EXPECT_EQ(3, report["calls"]["cuMemcpyHtoD_v2"]["calls"]);
}

TEST_F(Statistics, ChildAfterFork_CountsFromZero) {
  const Outcome parent = run_calls("3", "2", "call-after-fork", file("s.json"));
  const auto reports = read_all();
  ASSERT_EQ(2U, reports.size());
  const json& child = reports[0]["pid"] == parent.pid ? reports[1] : reports[0];
  EXPECT_EQ(1, child["calls"]["cuMemcpyHtoD_v2"]["calls"]);
  EXPECT_EQ(json::array(), child["rates"]);
  EXPECT_EQ(nullptr, child["engine"]);
}

TEST_F(Statistics, UnwritableFile_OnlyWarns) {
  const Outcome outcome = run_calls("1", "0", "return", file("missing/s.json"));
  EXPECT_EQ("polypath: warn: the statistics cannot be written to " + file("missing/s.json") + "\n",
            outcome.error);
  run_calls("1", "0", "closed-stderr", "text");
  run_calls("1", "0", "broken-stderr", "text");
}

}  // namespace
}  // namespace polypath::preload::test
