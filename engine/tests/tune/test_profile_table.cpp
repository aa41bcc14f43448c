// Tables of a profile, with entries that only this test knows: one entry for each key, copies, and
// what of another process is kept.
#include "tune/profile_table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "trial_entry.hpp"
#include "tune/tuned_transfer_profile.hpp"

namespace polypath {
namespace {

using testing::ElementsAre;

TEST(ProfileTable, PutReplacesTheSameKeyInPlace) {
  ProfileTable<TrialEntry> table({{"a", 1}, {"b", 2}});
  table.put({"a", 3});
  table.put({"c", 4});
  EXPECT_THAT(table.entries(),
              ElementsAre(TrialEntry{"a", 3}, TrialEntry{"b", 2}, TrialEntry{"c", 4}));
  EXPECT_EQ(table.find({"b", 99})->value, 2);
  EXPECT_EQ(table.find({"d", 2}), nullptr);
}

TEST(ProfileTable, TransfersHaveAKeyOfFour) {
  const TunedTransfer entry{.pattern = Pattern::one_way,
                            .pair = "gpu to gpu",
                            .choice = {.bytes = 4096},
                            .executor = ExecutorKind::stream,
                            .measured_gbps = 1};
  const ProfileTable<TunedTransfer> table({entry});
  TunedTransfer key = entry;
  key.measured_gbps = 2;
  EXPECT_EQ(table.find(key), table.entries().data());
  key.executor = ExecutorKind::graph;
  EXPECT_EQ(table.find(key), nullptr);
  key = entry;
  key.choice.bytes = 4097;
  EXPECT_EQ(table.find(key), nullptr);
  key = entry;
  key.pair = "host to gpu";
  EXPECT_EQ(table.find(key), nullptr);
  key = entry;
  key.pattern = Pattern::both_ways;
  EXPECT_EQ(table.find(key), nullptr);
}

TEST(ProfileTables, MergeKeepsEditedEntries) {
  ProfileTables all;
  all.table<TrialEntry>() = ProfileTable<TrialEntry>({{"a", 1, true}, {"b", 2}});
  ProfileTables news;
  news.table<TrialEntry>() = ProfileTable<TrialEntry>({{"a", 5}, {"b", 6}, {"c", 7}});
  all.merge(news);
  EXPECT_THAT(all.table<TrialEntry>().entries(),
              ElementsAre(TrialEntry{"a", 1, true}, TrialEntry{"b", 6}, TrialEntry{"c", 7}));
}

TEST(ProfileTables, CopiesAreIndependent) {
  ProfileTables first;
  first.table<TrialEntry>().put({"a", 1});
  ProfileTables second = first;
  second.table<TrialEntry>().put({"a", 2});
  EXPECT_EQ(first.table<TrialEntry>().entries().front().value, 1);
  first = second;
  EXPECT_EQ(first.table<TrialEntry>().entries().front().value, 2);
}

TEST(ProfileTables, JsonHasAllKeys) {
  ProfileTables tables;
  tables.table<TrialEntry>().put({"a", 1});
  nlohmann::json all;
  tables.to_json(all);
  EXPECT_EQ(all["trials"], nlohmann::json({{{"name", "a"}, {"value", 1}}}));
  EXPECT_EQ(all["choices"], nlohmann::json::array());
}

}  // namespace
}  // namespace polypath
