#include "tune/tuned_format.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <sstream>

namespace polypath {
namespace {

constexpr double kMostBytes = 1e15;
constexpr double kMostGbps = 1e6;
constexpr double kShareTolerance = 0.01;

double rounded(double value, double step) { return std::round(value / step) * step; }

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

std::string format_tuned(const TunedChoice& choice) {
  toml::array routes;
  toml::array shares;
  toml::array chunks;
  for (const RouteChoice& route : choice.choice.routes) {
    routes.push_back(choice_name(route.kind));
    shares.push_back(rounded(route.share, 1e-4));
    chunks.push_back(route.chunks);
  }
  // One key a line, in the order of reading.
  std::ostringstream text;
  const auto line = [&](const char* key, const auto& value) {
    text << key << " = " << toml::table{{"v", value}}["v"] << '\n';
  };
  text << "[[tuned]]\n";
  line("pattern", to_string(choice.pattern));
  line("pair", choice.pair);
  line("bytes", static_cast<std::int64_t>(choice.choice.bytes));
  line("executor", to_string(choice.executor));
  line("routes", routes);
  line("shares", shares);
  line("chunks", chunks);
  line("slots", choice.choice.slots);
  line("native_gbps", rounded(choice.native_gbps, 1e-2));
  line("predicted_gbps", rounded(choice.predicted_gbps, 1e-2));
  line("measured_gbps", rounded(choice.measured_gbps, 1e-2));
  line("tried", choice.tried);
  if (!choice.edited) line("digest", static_cast<std::int64_t>(digest(choice)));
  return text.str();
}

TunedChoice read_tuned(TomlTable& table) {
  TunedChoice tuned;
  tuned.pattern = read_pattern(table);
  tuned.pair = table.text("pair");
  tuned.choice.bytes = static_cast<std::uint64_t>(table.number("bytes", {4096, kMostBytes}));
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
  tuned.native_gbps = table.number("native_gbps", {0, kMostGbps}, 0);
  tuned.predicted_gbps = table.number("predicted_gbps", {0, kMostGbps}, 0);
  tuned.measured_gbps = table.number("measured_gbps", {0, kMostGbps}, 0);
  tuned.tried = table.integer("tried", {0, 1e9}, 0);
  const double written = table.number("digest", {0, 4294967295.0}, -1);
  tuned.edited = written != static_cast<double>(digest(tuned));
  table.finish();
  return tuned;
}

}  // namespace polypath
