#include "uniconn/backend_profile.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "uniconn/tuned_backend_json.hpp"

namespace polypath {
namespace {

constexpr double kMaxBackendUs = 1e12;
constexpr double kMaxBackendBytes = 1e15;

/// Names that this library does not know may be another version's.
std::string read_name(TomlTable& table, const char* key) {
  std::string name = table.text(key);
  const bool is_word = std::ranges::all_of(
      name, [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; });
  if (!is_word) table.fail(key, "must be of letters from a to z, digits and '_'");
  return name;
}

}  // namespace

TunedBackend ProfileFormat<TunedBackend>::read(TomlTable& table) {
  TunedBackend entry;
  entry.op = read_name(table, "op");
  entry.ranks = table.text("ranks");
  entry.bytes = static_cast<std::uint64_t>(table.number("bytes", {1, kMaxBackendBytes}));
  entry.backend = read_name(table, "backend");
  if (table.has("backends") || table.has("us")) {
    const auto names = table.texts("backends");
    const auto us = table.numbers("us", {0, kMaxBackendUs});
    if (names.size() != us.size()) table.fail("us", "must have one number for each of backends");
    for (std::size_t i = 0; i < names.size(); ++i) entry.times.push_back({names[i], us[i]});
  }
  entry.pairs = table.integer("pairs", {0, 1e9}, 0);
  const double written = table.number("digest", {0, 4294967295.0}, -1);
  entry.edited = written != static_cast<double>(digest(entry));
  table.finish();
  return entry;
}

std::string ProfileFormat<TunedBackend>::format(const TunedBackend& entry) {
  std::string text = fmt::format(
      "[[comm]]\n"
      "op = \"{}\"\n"
      "ranks = \"{}\"\n"
      "bytes = {}\n"
      "backend = \"{}\"\n",
      entry.op, entry.ranks, entry.bytes, entry.backend);
  if (!entry.times.empty()) {
    std::vector<std::string> names;
    std::vector<std::string> us;
    for (const BackendTime& time : entry.times) {
      names.push_back(fmt::format("\"{}\"", time.backend));
      us.push_back(fmt::format("{:.2f}", time.us));
    }
    text +=
        fmt::format("backends = [{}]\nus = [{}]\n", fmt::join(names, ", "), fmt::join(us, ", "));
  }
  text += fmt::format("pairs = {}\n", entry.pairs);
  if (!entry.edited) text += fmt::format("digest = {}\n", digest(entry));
  return text;
}

void ProfileFormat<TunedBackend>::append_json(nlohmann::json& array, const TunedBackend& entry) {
  array.push_back(to_json(entry));
}

bool ProfileFormat<TunedBackend>::has_same_key(const TunedBackend& left,
                                               const TunedBackend& right) {
  return left.op == right.op && left.ranks == right.ranks && left.bytes == right.bytes;
}

}  // namespace polypath
