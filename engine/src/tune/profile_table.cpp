#include "tune/profile_table.hpp"

#include <nlohmann/json.hpp>

namespace polypath {
namespace {

std::vector<ProfileTableFactory>& factories() {
  static std::vector<ProfileTableFactory> all;
  return all;
}

}  // namespace

bool register_profile_table(ProfileTableFactory factory) {
  factories().push_back(factory);
  return true;
}

ProfileTables::ProfileTables() {
  for (const ProfileTableFactory factory : factories()) tables_.push_back(factory());
  // The order of registration is the linker's.
  std::ranges::sort(tables_, {}, [](const auto& table) { return table->name(); });
}

ProfileTables::ProfileTables(const ProfileTables& other) {
  for (const auto& table : other.tables_) tables_.push_back(table->clone());
}

ProfileTables& ProfileTables::operator=(ProfileTables other) noexcept {
  tables_.swap(other.tables_);
  return *this;
}

std::vector<std::string_view> ProfileTables::names() const {
  std::vector<std::string_view> names;
  for (const auto& table : tables_) names.push_back(table->name());
  return names;
}

void ProfileTables::read(TomlTable& file) {
  for (const auto& table : tables_)
    for (TomlTable& entry : file.entries(std::string(table->name()))) table->read(entry);
}

std::string ProfileTables::format() const {
  std::string text;
  for (const auto& table : tables_) table->format(text);
  return text;
}

void ProfileTables::to_json(nlohmann::json& object) const {
  for (const auto& table : tables_) {
    nlohmann::json& array = object[std::string(table->key())] = nlohmann::json::array();
    table->append_json(array);
  }
}

void ProfileTables::merge(const ProfileTables& news) {
  for (const auto& from : news.tables_) {
    const auto into =
        std::ranges::find(tables_, from->name(), [](const auto& table) { return table->name(); });
    if (into == tables_.end())
      tables_.push_back(from->clone());
    else
      (*into)->merge(*from);
  }
}

}  // namespace polypath
