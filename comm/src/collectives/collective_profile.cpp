#include "collectives/collective_profile.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "collectives/plan/tuned_collective_json.hpp"

namespace polypath {
namespace {

constexpr double kMaxUs = 1e12;
constexpr double kMaxMessage = 1e15;
constexpr const char* kOps[] = {"allreduce", "reduce_scatter", "all_gather",
                                "broadcast", "reduce",         "all_to_all"};
/// The ring is none of them: it sums in another order.
constexpr const char* kKernels[] = {"cells", "lines", "flat", "relayed"};
constexpr const char* kChannels[] = {"flat", "relayed"};
constexpr const char* kCopyKeys[] = {"pairwise", "host-trees", "mixed", "hierarchical"};
constexpr double kMaxTileBytes = 1 << 20;
constexpr double kMaxLag = 64;

template <std::size_t count>
bool is_one_of(const std::string& name, const char* const (&names)[count]) {
  return std::ranges::find(names, name) != std::end(names);
}

}  // namespace

TunedCollective ProfileFormat<TunedCollective>::read(TomlTable& table) {
  TunedCollective entry;
  entry.op = table.text("op");
  if (!is_one_of(entry.op, kOps))
    table.fail("op", fmt::format("must be one of {}", fmt::join(kOps, ", ")));
  entry.ranks = table.text("ranks");
  entry.bytes = static_cast<std::uint64_t>(table.number("bytes", {1, kMaxMessage}));
  CollectiveVariant& way = entry.way;
  way.algorithm = table.text("algorithm");
  if (is_one_of(way.algorithm, kKernels)) {
    way.stages = table.integer("stages", {1, 2});
    way.blocks = table.integer("blocks", {1, 1024});
    if (is_one_of(way.algorithm, kChannels)) {
      way.tile_bytes =
          static_cast<std::uint64_t>(table.number("tile_bytes", {0, kMaxTileBytes}, 0));
      way.lag = table.integer("lag", {0, kMaxLag}, 0);
    }
  } else if (is_one_of(way.algorithm, kCopyKeys)) {
    way.lanes = table.integer("lanes", {0, 64}, 0);
    way.chunk_bytes = static_cast<std::uint64_t>(table.number("chunk_bytes", {4096, kMaxMessage}));
  } else {
    table.fail("algorithm", fmt::format("must be one of {}, {}", fmt::join(kKernels, ", "),
                                        fmt::join(kCopyKeys, ", ")));
  }
  entry.planned_us = table.number("planned_us", {0, kMaxUs}, 0);
  entry.us = table.number("us", {0, kMaxUs}, 0);
  entry.tried = table.integer("tried", {0, 1e9}, 0);
  const double written = table.number("digest", {0, 4294967295.0}, -1);
  entry.edited = written != static_cast<double>(digest(entry));
  table.finish();
  return entry;
}

std::string ProfileFormat<TunedCollective>::format(const TunedCollective& entry) {
  const CollectiveVariant& way = entry.way;
  std::string text = fmt::format(
      "[[collective]]\n"
      "op = \"{}\"\n"
      "ranks = \"{}\"\n"
      "bytes = {}\n"
      "algorithm = \"{}\"\n",
      entry.op, entry.ranks, entry.bytes, way.algorithm);
  if (way.stages > 0) text += fmt::format("stages = {}\nblocks = {}\n", way.stages, way.blocks);
  if (way.tile_bytes > 0) text += fmt::format("tile_bytes = {}\n", way.tile_bytes);
  if (way.lag > 0) text += fmt::format("lag = {}\n", way.lag);
  if (way.lanes > 0) text += fmt::format("lanes = {}\n", way.lanes);
  if (way.chunk_bytes > 0) text += fmt::format("chunk_bytes = {}\n", way.chunk_bytes);
  text += fmt::format("planned_us = {:.2f}\nus = {:.2f}\ntried = {}\n", entry.planned_us, entry.us,
                      entry.tried);
  if (!entry.edited) text += fmt::format("digest = {}\n", digest(entry));
  return text;
}

void ProfileFormat<TunedCollective>::append_json(nlohmann::json& array,
                                                 const TunedCollective& entry) {
  array.push_back(to_json(entry));
}

bool ProfileFormat<TunedCollective>::has_same_key(const TunedCollective& left,
                                                  const TunedCollective& right) {
  return left.op == right.op && left.ranks == right.ranks && left.bytes == right.bytes;
}

std::vector<TunedCollective> read_collectives(std::string_view text) {
  const std::string name = "node";
  const toml::table root = toml::parse(text);
  TomlTable whole(root, name, "node");
  std::vector<TunedCollective> all;
  for (TomlTable& entry : whole.entries(ProfileFormat<TunedCollective>::kTable))
    all.push_back(ProfileFormat<TunedCollective>::read(entry));
  return all;
}

}  // namespace polypath
