// A kind of entries of a profile that only tests know.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tune/profile_table.hpp"

namespace polypath {

struct TrialEntry {
  std::string name;
  int value = 0;
  bool edited = false;

  friend bool operator==(const TrialEntry&, const TrialEntry&) = default;
};

template <>
struct ProfileFormat<TrialEntry> {
  static constexpr std::string_view kTable = "trial";
  static constexpr std::string_view kKey = "trials";
  static TrialEntry read(TomlTable& table) {
    TrialEntry entry{table.text("name"), table.integer("value", {0, 100})};
    entry.edited = table.integer("edited", {0, 1}, 0) == 1;
    table.finish();
    return entry;
  }
  static std::string format(const TrialEntry& entry) {
    return fmt::format("[[trial]]\nname = \"{}\"\nvalue = {}\nedited = {}\n", entry.name,
                       entry.value, entry.edited ? 1 : 0);
  }
  static void append_json(nlohmann::json& array, const TrialEntry& entry) {
    array.push_back({{"name", entry.name}, {"value", entry.value}});
  }
  static bool has_same_key(const TrialEntry& left, const TrialEntry& right) {
    return left.name == right.name;
  }
};

}  // namespace polypath
