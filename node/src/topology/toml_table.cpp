#include "topology/toml_table.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.hpp"

namespace polypath {
namespace {

constexpr std::string_view kOneTextOrMore = "must be a string or a list of strings";

std::string describe(Range range) { return fmt::format("{} to {}", range.min, range.max); }

bool inside(double value, Range range) { return value >= range.min && value <= range.max; }

const toml::table& empty_table() {
  static const toml::table table;
  return table;
}

}  // namespace

TomlTable::TomlTable(const toml::table& table, const std::string& file, std::string title)
    : table_(table), file_(file), title_(std::move(title)) {}

bool TomlTable::has(std::string_view key) const { return table_.contains(key); }

void TomlTable::fail(std::string_view what) const {
  throw InvalidArgument(
      fmt::format("{}:{}: {}: {}", file_, table_.source().begin.line, title_, what));
}

void TomlTable::fail(std::string_view key, std::string_view what) const {
  const toml::node* const node = table_.get(key);
  const auto line = (node != nullptr ? node->source() : table_.source()).begin.line;
  throw InvalidArgument(fmt::format("{}:{}: {} {}: {}", file_, line, title_, key, what));
}

const toml::node* TomlTable::ask(std::string_view key) {
  asked_.emplace_back(key);
  return table_.get(key);
}

const toml::node& TomlTable::need(std::string_view key, std::string_view expected) {
  const toml::node* const node = ask(key);
  if (node == nullptr) fail(fmt::format("'{}' is missing ({})", key, expected));
  return *node;
}

double TomlTable::to_number(std::string_view key, const toml::node& node, Range range) const {
  const auto value = node.is_number() ? node.value<double>() : std::nullopt;
  if (!value || !inside(*value, range))
    fail(key, fmt::format("must be a number from {}", describe(range)));
  return *value;
}

int TomlTable::to_integer(std::string_view key, const toml::node& node, Range range) const {
  const auto value = node.is_integer() ? node.value<std::int64_t>() : std::nullopt;
  if (!value || !inside(static_cast<double>(*value), range))
    fail(key, fmt::format("must be a whole number from {}", describe(range)));
  return static_cast<int>(*value);
}

std::string TomlTable::text(std::string_view key) {
  const auto value = need(key, "a string").value<std::string>();
  if (!value || value->empty()) fail(key, "must be a string, not empty");
  return *value;
}

std::string TomlTable::text(std::string_view key, std::string_view fallback) {
  const toml::node* const node = ask(key);
  if (node == nullptr) return std::string(fallback);
  const auto value = node->value<std::string>();
  if (!value) fail(key, "must be a string");
  return *value;
}

bool TomlTable::boolean(std::string_view key, bool fallback) {
  const toml::node* const node = ask(key);
  if (node == nullptr) return fallback;
  if (!node->is_boolean()) fail(key, "must be true or false");
  return node->value<bool>().value();
}

double TomlTable::number(std::string_view key, Range range) {
  return to_number(key, need(key, "a number from " + describe(range)), range);
}

double TomlTable::number(std::string_view key, Range range, double fallback) {
  const toml::node* const node = ask(key);
  return node == nullptr ? fallback : to_number(key, *node, range);
}

int TomlTable::integer(std::string_view key, Range range) {
  return to_integer(key, need(key, "a whole number from " + describe(range)), range);
}

int TomlTable::integer(std::string_view key, Range range, int fallback) {
  const toml::node* const node = ask(key);
  return node == nullptr ? fallback : to_integer(key, *node, range);
}

std::vector<std::string> TomlTable::texts(std::string_view key) {
  const toml::node& node = need(key, "a string or a list of strings");
  if (const auto text = node.value<std::string>()) return {*text};
  const toml::array* const list = node.as_array();
  if (list == nullptr || list->empty()) fail(key, kOneTextOrMore);
  std::vector<std::string> all;
  for (const toml::node& item : *list) {
    const auto value = item.value<std::string>();
    if (!value) fail(key, kOneTextOrMore);
    all.push_back(*value);
  }
  return all;
}

std::vector<double> TomlTable::numbers(std::string_view key, Range range) {
  const toml::node& node = need(key, "a list of numbers");
  const toml::array* const list = node.as_array();
  if (list == nullptr) fail(key, "must be a list of numbers");
  std::vector<double> all;
  for (const toml::node& item : *list) all.push_back(to_number(key, item, range));
  return all;
}

std::vector<int> TomlTable::integers(std::string_view key, Range range, int count, int fallback) {
  const auto size = static_cast<std::size_t>(count);
  const toml::node* const node = ask(key);
  if (node == nullptr) return std::vector<int>(size, fallback);
  const toml::array* const list = node->as_array();
  if (list == nullptr) return std::vector<int>(size, to_integer(key, *node, range));
  if (list->size() != size)
    fail(key,
         fmt::format("is a list of {}; must be one number, or a list of {}", list->size(), count));
  std::vector<int> all;
  for (const toml::node& item : *list) all.push_back(to_integer(key, item, range));
  return all;
}

TomlTable TomlTable::section(std::string_view key) {
  std::string title = fmt::format("[{}]", key);
  const toml::node* const node = ask(key);
  if (node == nullptr) return {empty_table(), file_, std::move(title)};
  if (!node->is_table()) fail(key, fmt::format("must be a table: {}", title));
  return {*node->as_table(), file_, std::move(title)};
}

std::vector<TomlTable> TomlTable::entries(std::string_view key) {
  const std::string title = fmt::format("[[{}]]", key);
  const toml::node* const node = ask(key);
  if (node == nullptr) return {};
  if (!node->is_array_of_tables()) fail(key, fmt::format("must be a list of tables: {}", title));
  std::vector<TomlTable> all;
  for (const toml::node& item : *node->as_array()) all.emplace_back(*item.as_table(), file_, title);
  return all;
}

void TomlTable::skip_entries() {
  for (const auto& [key, node] : table_)
    if (node.is_array_of_tables()) asked_.emplace_back(key.str());
}

void TomlTable::finish() const {
  for (const auto& [key, node] : table_)
    if (std::find(asked_.begin(), asked_.end(), key.str()) == asked_.end())
      fail(key.str(), fmt::format("is not a known key; known: {}", fmt::join(asked_, ", ")));
}

}  // namespace polypath
