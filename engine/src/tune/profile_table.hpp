// The tables of a profile (tune/profile.hpp). A table has entries of one type, which a part of the
// library owns: transfers, collectives, UNICONN's backends. Profiles read, write and merge tables
// without knowing their entries.
#pragma once

#include <algorithm>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "topology/toml_table.hpp"

namespace polypath {

/// How a profile keeps an Entry; the owner of Entry specialises it, with
///   static constexpr std::string_view kTable = "collective";  // [[collective]] of the file
///   static constexpr std::string_view kKey = "collectives";   // of polypath_tuning_results()
///   static Entry read(TomlTable& table);  // throws InvalidArgument: file, line, allowed values
///   static std::string format(const Entry& entry);  // the table, ended by a newline
///   static void append_json(nlohmann::json& array, const Entry& entry);
///   static bool has_same_key(const Entry& left, const Entry& right);  // one replaces the other
/// `entry.edited`: changed by hand in the profile, so that no search replaces it.
template <typename Entry>
struct ProfileFormat;

class AnyProfileTable {
 public:
  virtual ~AnyProfileTable() = default;
  [[nodiscard]] virtual std::unique_ptr<AnyProfileTable> clone() const = 0;
  /// ProfileFormat::kTable: the name in a file.
  [[nodiscard]] virtual std::string_view name() const = 0;
  /// As ProfileFormat::kKey.
  [[nodiscard]] virtual std::string_view key() const = 0;
  /// Reads an entry of a file, and puts it at the end. Throws InvalidArgument.
  virtual void read(TomlTable& table) = 0;
  /// Appends all entries, each after an empty line.
  virtual void format(std::string& text) const = 0;
  virtual void append_json(nlohmann::json& array) const = 0;
  /// Puts the entries of `news`, of the same type, into this table; an edited entry stays.
  virtual void merge(const AnyProfileTable& news) = 0;

 protected:
  AnyProfileTable() = default;
  AnyProfileTable(const AnyProfileTable&) = default;
  AnyProfileTable& operator=(const AnyProfileTable&) = default;
};

/// Entries with different keys. Pointers to entries are valid until the table changes.
template <typename Entry>
class ProfileTable final : public AnyProfileTable {
 public:
  using Format = ProfileFormat<Entry>;

  ProfileTable() = default;
  explicit ProfileTable(std::vector<Entry> entries) : entries_(std::move(entries)) {}

  [[nodiscard]] const std::vector<Entry>& entries() const noexcept { return entries_; }
  /// The entry with the key of `key`, or null.
  [[nodiscard]] const Entry* find(const Entry& key) const {
    const auto match = std::ranges::find_if(
        entries_, [&](const Entry& entry) { return Format::has_same_key(entry, key); });
    return match == entries_.end() ? nullptr : &*match;
  }
  /// Replaces the entry with the same key, or puts `entry` at the end.
  void put(Entry entry) {
    if (const Entry* const known = find(entry))
      entries_[static_cast<std::size_t>(known - entries_.data())] = std::move(entry);
    else
      entries_.push_back(std::move(entry));
  }

  [[nodiscard]] std::unique_ptr<AnyProfileTable> clone() const override {
    return std::make_unique<ProfileTable>(*this);
  }
  [[nodiscard]] std::string_view name() const override { return Format::kTable; }
  [[nodiscard]] std::string_view key() const override { return Format::kKey; }
  void read(TomlTable& table) override { entries_.push_back(Format::read(table)); }
  void format(std::string& text) const override {
    for (const Entry& entry : entries_) text += '\n' + Format::format(entry);
  }
  void append_json(nlohmann::json& array) const override {
    for (const Entry& entry : entries_) Format::append_json(array, entry);
  }
  void merge(const AnyProfileTable& news) override {
    for (const Entry& entry : dynamic_cast<const ProfileTable&>(news).entries_)
      if (const Entry* const known = find(entry); known == nullptr || !known->edited) put(entry);
  }

 private:
  std::vector<Entry> entries_;
};

/// Makes an empty table.
using ProfileTableFactory = std::unique_ptr<AnyProfileTable> (*)();
/// All ProfileTables that are made from now on have the table. Called as the program starts.
bool register_profile_table(ProfileTableFactory factory);
template <typename Entry>
inline const bool kIsRegistered = register_profile_table(
    []() -> std::unique_ptr<AnyProfileTable> { return std::make_unique<ProfileTable<Entry>>(); });

/// A table of each type that this program uses: wherever table<Entry>() is compiled, the type is
/// registered as the program starts.
class ProfileTables {
 public:
  /// Empty tables.
  ProfileTables();
  ProfileTables(const ProfileTables& other);
  ProfileTables(ProfileTables&&) noexcept = default;
  ProfileTables& operator=(ProfileTables other) noexcept;
  ~ProfileTables() = default;

  template <typename Entry>
  [[nodiscard]] ProfileTable<Entry>& table() {
    static_cast<void>(kIsRegistered<Entry>);
    for (const auto& table : tables_)
      if (auto* const match = dynamic_cast<ProfileTable<Entry>*>(table.get())) return *match;
    throw std::logic_error("made before its types were registered");
  }
  template <typename Entry>
  [[nodiscard]] const ProfileTable<Entry>& table() const {
    return const_cast<ProfileTables*>(this)->table<Entry>();
  }

  /// The name of each table.
  [[nodiscard]] std::vector<std::string_view> names() const;
  /// Reads the tables of a file into these, which are empty. Throws InvalidArgument with file, line
  /// and the allowed values.
  void read(TomlTable& file);
  /// As in a file, each entry after an empty line.
  [[nodiscard]] std::string format() const;
  /// Sets `object[key]` to an array for each table.
  void to_json(nlohmann::json& object) const;
  /// Puts the entries of `news` into these tables; an edited entry stays.
  void merge(const ProfileTables& news);

 private:
  std::vector<std::unique_ptr<AnyProfileTable>> tables_;  // by name
};

}  // namespace polypath
