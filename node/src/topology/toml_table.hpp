// A TOML table read strictly: every key is requested by name and range, other keys are errors, and
// every error says "FILE:LINE: what, and the allowed range".
#pragma once

#include <toml++/toml.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace polypath {

/// Allowed values, both ends included.
struct Range {
  double min;
  double max;
};

class TomlTable {
 public:
  /// `title` is how messages call the table: "[[link]]". Both references outlive this object.
  TomlTable(const toml::table& table, const std::string& file, std::string title);

  [[nodiscard]] bool has(std::string_view key) const;

  // Each throws InvalidArgument when the key is missing (the forms without a fallback), has another
  // type, or lies outside its range.
  std::string text(std::string_view key);
  std::string text(std::string_view key, std::string_view fallback);
  bool boolean(std::string_view key, bool fallback);
  double number(std::string_view key, Range range);
  double number(std::string_view key, Range range, double fallback);
  int integer(std::string_view key, Range range);
  int integer(std::string_view key, Range range, int fallback);
  /// One string, or a list of strings.
  std::vector<std::string> texts(std::string_view key);
  /// A list of numbers.
  std::vector<double> numbers(std::string_view key, Range range);
  /// One whole number for all of `count`, or a list of `count` of them.
  std::vector<int> integers(std::string_view key, Range range, int count, int fallback);
  /// The table under `key`; an empty one when there is none.
  TomlTable section(std::string_view key);
  /// The entries of [[key]]; none when there is none.
  std::vector<TomlTable> entries(std::string_view key);

  /// Lets finish() accept all [[tables]].
  void skip_entries();

  /// Throws InvalidArgument for the first key that was never asked for.
  void finish() const;

  [[noreturn]] void fail(std::string_view what) const;
  [[noreturn]] void fail(std::string_view key, std::string_view what) const;

 private:
  const toml::node* ask(std::string_view key);
  const toml::node& need(std::string_view key, std::string_view expected);
  double to_number(std::string_view key, const toml::node& node, Range range) const;
  int to_integer(std::string_view key, const toml::node& node, Range range) const;

  const toml::table& table_;
  const std::string& file_;
  std::string title_;
  std::vector<std::string> asked_;
};

}  // namespace polypath
