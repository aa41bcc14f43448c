#include "tune/tuned_transfer_profile.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>

namespace polypath {
namespace {

constexpr double kMaxBytes = 1e15;
constexpr double kMaxGbps = 1e6;
constexpr double kShareTolerance = 0.01;

RouteKind read_kind(TomlTable& table, const std::string& name) {
  for (const RouteKind kind : {RouteKind::direct, RouteKind::via_gpu, RouteKind::via_host})
    if (name == choice_name(kind)) return kind;
  table.fail("routes", "may hold direct, gpu, host");
}

Pattern read_pattern(TomlTable& table) {
  const std::string name = table.text("pattern");
  for (const Pattern pattern : kPatterns)
    if (name == to_string(pattern)) return pattern;
  table.fail("pattern", "must be \"one way\", \"both ways\" or \"window\"");
}

ExecutorKind read_executor(TomlTable& table) {
  const std::string name = table.text("executor");
  for (const ExecutorKind kind : {ExecutorKind::stream, ExecutorKind::graph})
    if (name == to_string(kind)) return kind;
  table.fail("executor", "must be \"stream\" or \"graph\"");
}

}  // namespace

std::string ProfileFormat<TunedTransfer>::format(const TunedTransfer& choice) {
  const auto list = [&](const auto& item) {
    std::string text;
    for (const RouteConfig& route : choice.choice.routes)
      text += (text.empty() ? "" : ", ") + item(route);
    return "[" + text + "]";
  };
  std::string text = fmt::format(
      "[[tuned]]\n"
      "pattern = \"{}\"\n"
      "pair = \"{}\"\n"
      "bytes = {}\n"
      "executor = \"{}\"\n",
      to_string(choice.pattern), choice.pair, choice.choice.bytes, to_string(choice.executor));
  text += fmt::format(
      "routes = {}\nshares = {}\nchunks = {}\nslots = {}\n",
      list([](const RouteConfig& route) { return fmt::format("\"{}\"", choice_name(route.kind)); }),
      list([](const RouteConfig& route) { return fmt::format("{:.4f}", route.share); }),
      list([](const RouteConfig& route) { return fmt::format("{}", route.chunks); }),
      choice.choice.slots);
  text += fmt::format(
      "native_gbps = {:.2f}\npredicted_gbps = {:.2f}\nmeasured_gbps = {:.2f}\ntried = {}\n",
      choice.native_gbps, choice.predicted_gbps, choice.measured_gbps, choice.tried);
  if (!choice.edited) text += fmt::format("digest = {}\n", digest(choice));
  return text;
}

TunedTransfer ProfileFormat<TunedTransfer>::read(TomlTable& table) {
  TunedTransfer tuned;
  tuned.pattern = read_pattern(table);
  tuned.pair = table.text("pair");
  tuned.choice.bytes = static_cast<std::uint64_t>(table.number("bytes", {4096, kMaxBytes}));
  tuned.executor = read_executor(table);
  const auto kinds = table.texts("routes");
  const auto shares = table.numbers("shares", {0, 1});
  if (kinds.empty() || kinds.size() != shares.size())
    table.fail("shares", "must have one number for each of the routes");
  const auto chunks = table.integers("chunks", {1, 65536}, static_cast<int>(kinds.size()), 1);
  double sum = 0;
  for (std::size_t r = 0; r < kinds.size(); ++r) {
    tuned.choice.routes.push_back({read_kind(table, kinds[r]), shares[r], chunks[r]});
    sum += shares[r];
  }
  if (std::abs(sum - 1) > kShareTolerance)
    table.fail("shares", fmt::format("add up to {:.3f} instead of 1", sum));
  tuned.choice.slots = table.integer("slots", {0, 64}, 0);
  tuned.native_gbps = table.number("native_gbps", {0, kMaxGbps}, 0);
  tuned.predicted_gbps = table.number("predicted_gbps", {0, kMaxGbps}, 0);
  tuned.measured_gbps = table.number("measured_gbps", {0, kMaxGbps}, 0);
  tuned.tried = table.integer("tried", {0, 1e9}, 0);
  const double written = table.number("digest", {0, 4294967295.0}, -1);
  tuned.edited = written != static_cast<double>(digest(tuned));
  table.finish();
  return tuned;
}

void ProfileFormat<TunedTransfer>::append_json(nlohmann::json& array, const TunedTransfer& entry) {
  nlohmann::json routes = nlohmann::json::array();
  for (const RouteConfig& route : entry.choice.routes)
    routes.push_back(
        {{"route", choice_name(route.kind)}, {"share", route.share}, {"chunks", route.chunks}});
  array.push_back({{"pattern", to_string(entry.pattern)},
                   {"pair", entry.pair},
                   {"bytes", entry.choice.bytes},
                   {"executor", to_string(entry.executor)},
                   {"routes", std::move(routes)},
                   {"slots", entry.choice.slots},
                   {"native_gbps", entry.native_gbps},
                   {"predicted_gbps", entry.predicted_gbps},
                   {"measured_gbps", entry.measured_gbps},
                   {"tried", entry.tried},
                   {"edited", entry.edited}});
}

bool ProfileFormat<TunedTransfer>::has_same_key(const TunedTransfer& left,
                                                const TunedTransfer& right) {
  return left.pattern == right.pattern && left.pair == right.pair &&
         left.choice.bytes == right.choice.bytes && left.executor == right.executor;
}

}  // namespace polypath
