// Sequences with the real engine: every byte of copies back to back on a stream that a library has
// made, and how many of them did not wait for those before them.
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

constexpr int kCopies = 16;  ///< of sequence_program.cpp

/// What the engine counted in a run of the program, which has found its bytes right.
json counted(const std::string& library, const std::string& how) {
  std::string folder = fs::temp_directory_path() / "polypath-sequences-XXXXXX";
  const fs::path file = fs::path(mkdtemp(folder.data())) / "%p.json";
  const Outcome outcome =
      run({POLYPATH_SEQUENCE_PROGRAM, library, how}, {{"LD_PRELOAD", POLYPATH_SHIM},
                                                      {"POLYPATH_NODE", "narval"},
                                                      {"POLYPATH_SIM_MODE", "functional"},
                                                      {"POLYPATH_SIM_SEED", "1"},
                                                      {"POLYPATH_PREPARE", "wait"},
                                                      // What other tests copy is no concern of it.
                                                      {"POLYPATH_REGISTRY", "off"},
                                                      {"POLYPATH_STATS", file}});
  EXPECT_EQ(7, outcome.status) << how << outcome.error;
  json engine = json::parse(
      std::ifstream(fs::path(folder) / (std::to_string(outcome.pid) + ".json")))["engine"];
  fs::remove_all(folder);
  EXPECT_GE(engine["split"], kCopies) << engine;
  return engine;
}

TEST(SequencePrograms, DisjointCopies_RunInSequence) {
  const json engine = counted(POLYPATH_TRANSPARENT_LIBRARY, "apart");
  EXPECT_GE(engine["followed"], kCopies / 2) << engine;
}

TEST(SequencePrograms, CopiesToOneDestinationKeepTheirOrder) {
  const json engine = counted(POLYPATH_TRANSPARENT_LIBRARY, "one-destination");
  EXPECT_GT(engine["followed"], 0) << engine;
}

TEST(SequencePrograms, CopiesOfWhatWasJustWrittenWaitForIt) {
  const json engine = counted(POLYPATH_TRANSPARENT_LIBRARY, "chained");
  EXPECT_EQ(engine["followed"], 0) << engine;
}

TEST(SequencePrograms, OthersWaitForEachOther) {
  const json engine = counted(POLYPATH_MEMSET_LIBRARY, "apart");
  EXPECT_EQ(engine["followed"], 0) << engine;
}

}  // namespace
}  // namespace polypath::preload::test
