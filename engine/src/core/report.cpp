#include "core/report.hpp"

#include <fmt/format.h>

#include <iterator>
#include <map>
#include <utility>

namespace polypath {
namespace {

/// "12.3 GB" in units of 1000, as rates are.
std::string people_bytes(std::uint64_t bytes) {
  constexpr const char* units[] = {"B", "kB", "MB", "GB", "TB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1000 && unit + 1 < std::size(units)) {
    value /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, units[unit]);
}

template <typename Reason, typename Counts>
std::string by_reason(const Counts& counts) {
  std::string text;
  for (std::size_t i = 0; i < counts.size(); ++i)
    if (counts[i] != 0)
      text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", to_string(static_cast<Reason>(i)),
                          counts[i]);
  return text;
}

}  // namespace

std::string report(Context& context) {
  const Counters::Snapshot counts = context.counters().snapshot();
  std::uint64_t native = 0;
  for (const std::uint64_t count : counts.native) native += count;
  std::string text = fmt::format(
      "transfers: {} ({}), {} split into {} copies, {} native, {} failed\n", counts.split + native,
      people_bytes(counts.bytes), counts.split, counts.copies, native, counts.failed);
  const auto append = [&](std::string_view what, const std::string& list) {
    if (!list.empty()) text += fmt::format("{}: {}\n", what, list);
  };
  append("native because", by_reason<NativeReason>(counts.native));

  std::map<std::pair<MemoryId, MemoryId>, std::uint64_t> pairs;
  for (const auto& [key, count] : counts.routes) pairs[{key.src, key.dst}] += count.bytes;
  for (const auto& [key, count] : counts.routes)
    text += fmt::format(
        "{} to {}, {}: {} in {} transfers, {:.1f} %\n", to_string(key.src), to_string(key.dst),
        key.route, people_bytes(count.bytes), count.transfers,
        100.0 * static_cast<double>(count.bytes) / static_cast<double>(pairs[{key.src, key.dst}]));
  if (counts.batches.calls + counts.batches.native != 0) {
    std::uint64_t entries = 0;
    std::uint64_t bytes = 0;
    for (const auto& [key, count] : counts.batches.routes) {
      entries += count.transfers;
      bytes += count.bytes;
    }
    text += fmt::format("batches: {}, {} by kernels, {} copies as transfers, {} native ({})\n",
                        counts.batches.calls, people_bytes(bytes), counts.batches.large,
                        counts.batches.native, people_bytes(counts.batches.native_bytes));
    for (const auto& [key, count] : counts.batches.routes)
      text += fmt::format("blocks {} to {}, {}: {}\n", to_string(key.src), to_string(key.dst),
                          key.route, people_bytes(count.bytes));
    append("native of batches because", by_reason<NativeReason>(counts.batches.native_by_reason));
  }
  if (counts.spreads.calls != 0) {
    text += fmt::format("spreads: {}, {} as a copy for each GPU, {} from pageable memory\n",
                        counts.spreads.calls, counts.spreads.native, counts.spreads.pageable);
    for (const auto& [key, count] : counts.spreads.routes)
      text += fmt::format("spread {} to {}, {}: {}\n", to_string(key.src), to_string(key.dst),
                          key.route, people_bytes(count.bytes));
    append("native of spreads because", by_reason<NativeReason>(counts.spreads.native_by_reason));
  }
  if (counts.pageable != 0)
    text += fmt::format("pageable memory: {} transfers by {} CPU threads\n", counts.pageable,
                        context.copy_threads());
  if (counts.files != 0)
    text +=
        fmt::format("files: {} reads by {} CPU threads\n", counts.files, context.copy_threads());
  if (counts.changed_by_load != 0)
    text += fmt::format("changed by load: {} transfers\n", counts.changed_by_load);
  append("routes left out", by_reason<ExclusionReason>(counts.excluded));

  if (const std::uint64_t pinned = PinnedBudget::used(); pinned != 0)
    text += fmt::format("pinned memory: {} of at most {}\n", people_bytes(pinned),
                        people_bytes(context.devices().pinned().limit()));
  const SharedMappings::Counts shared = context.shared_mappings().counts();
  if (shared.granted + shared.refused != 0)
    text += fmt::format("mappings opened to other GPUs: {} times, refused {}\n", shared.granted,
                        shared.refused);

  const GraphCache::Counts graphs = context.graph_counts();
  if (graphs.launches != 0)
    text += fmt::format("graphs: {} launches, {} built, {} given other addresses\n",
                        graphs.launches, graphs.builds, graphs.patches);
  return text;
}

}  // namespace polypath
