#include "messaging/queue_shape.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/error.hpp"
#include "polypath/device/detail/ll_packet.hpp"

namespace polypath {
namespace {

constexpr std::uint32_t kDefaultCapacity = 16384;
constexpr std::uint32_t kMaxCapacity = std::uint32_t{1} << 28;
constexpr std::uint32_t kSegments = 64;
constexpr std::uint32_t kGoodSegment = 256;  // what a block of four warps pushes by two
constexpr std::uint32_t kMinSegments = 4;    // no turn waits for another of its own call

void demand(bool holds, const char* why) {
  if (!holds) throw InvalidArgument(why);
}

std::uint32_t default_segment(std::uint32_t capacity) {
  return std::max(capacity / kSegments, std::min(kGoodSegment, capacity / kMinSegments));
}

}  // namespace

std::uint64_t QueueShape::cell_bytes() const {
  if (is_line) return device::kLineBytes;
  return device::ll_packet_count(item_bytes) * sizeof(device::ll_packet);
}

QueueShape shape_of(const polypath_queue_options* options) {
  demand(options != nullptr, "options is null");
  demand(options->kind == POLYPATH_QUEUE_MPMC || options->kind == POLYPATH_QUEUE_SPSC,
         "options->kind is none");
  demand(options->layout == POLYPATH_PROTOCOL_LL || options->layout == POLYPATH_PROTOCOL_LL128,
         "options->layout is none");
  for (const std::uint32_t reserved : options->reserved)
    demand(reserved == 0, "options->reserved is not 0");
  const bool is_line = options->layout == POLYPATH_PROTOCOL_LL128;
  const std::size_t most = is_line ? device::kMaxLL128ItemBytes : device::kMaxLLItemBytes;
  if (options->item_bytes == 0 || options->item_bytes > most)
    throw InvalidArgument(fmt::format(
        "options->item_bytes is {}: an item in {} has 1 to {} bytes (send where larger data lie)",
        options->item_bytes, is_line ? "lines" : "packets", most));
  const std::uint32_t capacity = options->capacity == 0 ? kDefaultCapacity : options->capacity;
  if (!std::has_single_bit(capacity) || capacity < kMinSegments || capacity > kMaxCapacity)
    throw InvalidArgument(
        fmt::format("options->capacity is {}: it is to be a power of two, {} to {}", capacity,
                    kMinSegments, kMaxCapacity));
  const std::uint32_t segment =
      options->segment == 0 ? default_segment(capacity) : options->segment;
  if (!std::has_single_bit(segment) || segment > capacity / kMinSegments)
    throw InvalidArgument(fmt::format(
        "options->segment is {}: it is to be a power of two, at most a quarter of the capacity {}",
        segment, capacity));
  QueueShape shape;
  shape.is_pair = options->kind == POLYPATH_QUEUE_SPSC;
  shape.is_line = is_line;
  shape.item_bytes = static_cast<std::uint32_t>(options->item_bytes);
  shape.capacity_log2 = static_cast<std::uint32_t>(std::countr_zero(capacity));
  shape.segment_log2 = static_cast<std::uint32_t>(std::countr_zero(segment));
  shape.timeout_ms = options->timeout_ms;
  return shape;
}

}  // namespace polypath
