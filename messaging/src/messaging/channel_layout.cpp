#include "messaging/channel_layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/error.hpp"

namespace polypath {
namespace {

/// The logarithm of an option that is a power of two.
std::uint32_t log2_of(const char* name, std::uint32_t value, std::uint32_t otherwise,
                      std::uint32_t least, std::uint32_t most) {
  if (value == 0) value = otherwise;
  if (!std::has_single_bit(value) || value < least || value > most)
    throw InvalidArgument(fmt::format("options->{} is {}: it is to be a power of two, {} to {}",
                                      name, value, least, most));
  return static_cast<std::uint32_t>(std::countr_zero(value));
}

template <typename Options>
void require_reserved(const Options& options) {
  for (const std::uint32_t reserved : options.reserved)
    if (reserved != 0) throw InvalidArgument("options->reserved is not 0");
}

}  // namespace

device::channel_view layout_of(const polypath_channel_options& options, int rank, int ranks,
                               int windows) {
  using device::channel_view;
  constexpr std::uint32_t kMaxContexts = 65535;
  constexpr std::uint32_t kDefaultEager = 512;
  require_reserved(options);
  if (static_cast<std::uint32_t>(ranks) > channel_view::kMaxRanks)
    throw NotSupported(fmt::format("a channel of {} ranks: it has {} at the most", ranks,
                                   channel_view::kMaxRanks));
  if (windows < 0 || static_cast<std::uint32_t>(windows) > channel_view::kMaxWindows)
    throw InvalidArgument(fmt::format("count is {}: a channel has 0 to {} windows", windows,
                                      channel_view::kMaxWindows));
  if (options.contexts > kMaxContexts)
    throw InvalidArgument(
        fmt::format("options->contexts is {}: {} at the most", options.contexts, kMaxContexts));
  channel_view layout{};
  layout.rank = static_cast<std::uint32_t>(rank);
  layout.ranks = static_cast<std::uint32_t>(ranks);
  layout.contexts = options.contexts == 0 ? 1 : options.contexts;
  layout.units_log2 = log2_of("ring_bytes", options.ring_bytes, 16384, 256, 1U << 24) -
                      static_cast<std::uint32_t>(std::countr_zero(channel_view::kUnitBytes));
  layout.requests_log2 = log2_of("requests", options.requests, 128, 32, 1024);
  layout.unexpected_log2 = log2_of("unexpected", options.unexpected, 1024, 32, 65536);
  layout.windows = static_cast<std::uint32_t>(windows);
  const std::uint32_t most = channel_view::max_eager(layout.units_log2);
  layout.eager_bytes =
      options.eager_bytes == 0 ? std::min(kDefaultEager, most) : options.eager_bytes;
  if (layout.eager_bytes > most)
    throw InvalidArgument(
        fmt::format("options->eager_bytes is {}: a ring of {} bytes carries messages of {} at once",
                    layout.eager_bytes, layout.ring_bytes(), most));
  return layout;
}

device::active_messages_view layout_of(const polypath_active_messages_options& options, int rank,
                                       int ranks) {
  constexpr std::size_t kMaxBytes = 88;
  constexpr std::uint32_t kSegments = 8;
  require_reserved(options);
  if (options.argument_bytes > kMaxBytes)
    throw InvalidArgument(
        fmt::format("options->argument_bytes is {}: a message has {} at the most (send where "
                    "larger data lie)",
                    options.argument_bytes, kMaxBytes));
  if (static_cast<std::uint32_t>(ranks) > device::active_messages_view::kMaxRanks)
    throw NotSupported(fmt::format("active messages of {} ranks: {} at the most", ranks,
                                   device::active_messages_view::kMaxRanks));
  device::active_messages_view layout{};
  layout.rank = static_cast<std::uint32_t>(rank);
  layout.ranks = static_cast<std::uint32_t>(ranks);
  layout.shards_log2 = log2_of("shards", options.shards, 64, 1, 4096);
  layout.capacity_log2 = log2_of("capacity", options.capacity, 512, 128, 1U << 20);
  const auto segment = std::max<std::uint32_t>(32, (1U << layout.capacity_log2) / kSegments);
  layout.segment_log2 = static_cast<std::uint32_t>(std::countr_zero(segment));
  layout.cell_bytes = device::active_messages_view::cell_bytes_of(options.argument_bytes);
  return layout;
}

}  // namespace polypath
