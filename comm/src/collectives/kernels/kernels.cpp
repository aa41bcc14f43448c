#include "collectives/kernels/kernels.hpp"

#include <bit>

#include "collectives/kernels/images.hpp"
#include "collectives/kernels/rank_roles.h"

namespace polypath {
namespace {

struct KernelsOfType {
  const char* cells;
  const char* lines;  // of calls with even parts, in rank order
  const char* channels;
  const char* sums;  // of those that combine
  std::span<const unsigned char> (*image)() noexcept;
};

#define POLYPATH_KERNELS_AND(lines, type)                                              \
  {"polypath_cells_" #type, lines, "polypath_channels_" #type, "polypath_sums_" #type, \
   &collectives_##type##_image}
#define POLYPATH_KERNELS(type) POLYPATH_KERNELS_AND(nullptr, type)
#define POLYPATH_EVEN_KERNELS(type) POLYPATH_KERNELS_AND("polypath_lines_" #type, type)

KernelsOfType even_kernels(CollectiveOp op, DataType type) {
  if (!combines(op)) return POLYPATH_EVEN_KERNELS(bytes);
  switch (type) {
    case DataType::int8:
    case DataType::uint8: return POLYPATH_EVEN_KERNELS(int8);
    case DataType::int32:
    case DataType::uint32: return POLYPATH_EVEN_KERNELS(int32);
    case DataType::int64:
    case DataType::uint64: return POLYPATH_EVEN_KERNELS(int64);
    case DataType::float16: return POLYPATH_EVEN_KERNELS(float16);
    case DataType::bfloat16: return POLYPATH_EVEN_KERNELS(bfloat16);
    case DataType::float32: return POLYPATH_EVEN_KERNELS(float32);
    case DataType::float64: return POLYPATH_EVEN_KERNELS(float64);
  }
  return {};
}

KernelsOfType uneven_kernels(CollectiveOp op, DataType type) {
  if (!combines(op)) return POLYPATH_KERNELS(uneven_bytes);
  switch (type) {
    case DataType::int8:
    case DataType::uint8: return POLYPATH_KERNELS(uneven_int8);
    case DataType::int32:
    case DataType::uint32: return POLYPATH_KERNELS(uneven_int32);
    case DataType::int64:
    case DataType::uint64: return POLYPATH_KERNELS(uneven_int64);
    case DataType::float16: return POLYPATH_KERNELS(uneven_float16);
    case DataType::bfloat16: return POLYPATH_KERNELS(uneven_bfloat16);
    case DataType::float32: return POLYPATH_KERNELS(uneven_float32);
    case DataType::float64: return POLYPATH_KERNELS(uneven_float64);
  }
  return {};
}

/// For types that depend on the order.
KernelsOfType tree_kernels(DataType type) {
  if (type == DataType::float16) return POLYPATH_KERNELS(tree_float16);
  if (type == DataType::bfloat16) return POLYPATH_KERNELS(tree_bfloat16);
  if (type == DataType::float32) return POLYPATH_KERNELS(tree_float32);
  return POLYPATH_KERNELS(tree_float64);
}
#undef POLYPATH_EVEN_KERNELS
#undef POLYPATH_KERNELS
#undef POLYPATH_KERNELS_AND

KernelsOfType kernels_of(CollectiveOp op, DataType type, KernelForm form) {
  if (form.order == SumOrder::tree && combines(op) && depends_on_order(type))
    return tree_kernels(type);
  return form.is_uneven ? uneven_kernels(op, type) : even_kernels(op, type);
}

bool is_aligned(const void* address, std::size_t bytes) {
  return std::bit_cast<std::uintptr_t>(address) % bytes == 0;
}

/// The most elements of a call whose pieces have at most `longest` bytes.
std::uint64_t max_by_pieces(const ScratchShape& shape, CollectiveOp op, DataType type, int stages,
                            std::uint64_t longest) {
  CollectiveArgs args{};
  args.op = op;
  args.type = type;
  args.stages = static_cast<std::uint8_t>(stages);
  args.shape = shape;
  args.count = 1;
  std::uint64_t most = longest;
  const Pieces pieces = part_of(args).pieces;
  if (pieces.sliced)
    most = most / kSliceGranule * kSliceGranule * (shape.ranks - (pieces.skip < kMaxRanks));
  return most / size_of(type);
}

const char* why_not_by_lines(const CollectiveArgs& args) {
  const ScratchShape& shape = args.shape;
  if (shape.line_bytes == 0) return "there is no memory of lines";
  if (shape.line_bytes % kLineRowBytes != 0 || shape.line_bytes > kMaxLineRegion)
    return "line_bytes is not a multiple of 1024, up to 256 MiB";
  for (std::uint32_t rank = 0; rank < shape.ranks; ++rank)
    if (args.lines[rank] == nullptr || !is_aligned(args.lines[rank], kScratchGranule))
      return "the memory of lines of a rank is missing, or not aligned to 128 bytes";
  if (args.count > max_by_lines(shape, args.op, args.type, args.stages))
    return "the buffer is too large for the memory of lines";
  return nullptr;
}

const char* why_not_over_relays(const CollectiveArgs& args) {
  if (args.relay_count == 0) return nullptr;
  if (args.relay_count > kMaxRelays) return "there are more relays than 6";
  if (args.shape.ranks < 2) return "one rank goes over no relay";
  if (args.relay_slot_bytes < args.tile_bytes || args.relay_slot_bytes % kScratchGranule != 0)
    return "relay_slot_bytes is less than tile_bytes, or not a multiple of 128";
  for (std::uint32_t relay = 0; relay < args.relay_count; ++relay)
    if (args.relays[relay] == nullptr || !is_aligned(args.relays[relay], kScratchGranule))
      return "the memory of a relay is missing, or not aligned to 128 bytes";
  return nullptr;
}

}  // namespace

CollectiveKernel collective_kernel(KernelFamily family, CollectiveOp op, DataType type,
                                   KernelForm form) {
  const KernelsOfType kernels = kernels_of(op, type, form);
  const char* const name = family == KernelFamily::cells   ? kernels.cells
                           : family == KernelFamily::lines ? kernels.lines
                                                           : kernels.channels;
  return {name, kernels.image()};
}

CollectiveKernel sum_kernel(DataType type, SumOrder order) {
  const KernelsOfType kernels = kernels_of(CollectiveOp::allreduce, type, {order, false});
  return {kernels.sums, kernels.image()};
}

CollectiveKernel norm_kernel(bool is_fused, DataType type) {
  const bool is_float16 = type == DataType::float16;
  if (is_fused)
    return {is_float16 ? "polypath_all_reduce_norm_float16" : "polypath_all_reduce_norm_bfloat16",
            norm_kernels_image()};
  return {is_float16 ? "polypath_rms_norm_float16" : "polypath_rms_norm_bfloat16",
          norm_kernels_image()};
}

std::uint64_t max_norm_rows(const ScratchShape& shape, std::uint32_t hidden) {
  const std::uint32_t units = norm_units(hidden);
  if (units == 0 || units > kMaxNormUnits) return 0;
  return shape.cell_bytes / kCellRowBytes / units;
}

std::uint64_t max_by_cells(const ScratchShape& shape, CollectiveOp op, DataType type, int stages) {
  return max_by_pieces(shape, op, type, stages, shape.cell_bytes / kCellRowBytes * kCellRowData);
}

std::uint64_t max_by_lines(const ScratchShape& shape, CollectiveOp op, DataType type, int stages) {
  return max_by_pieces(shape, op, type, stages,
                       std::uint64_t{shape.line_bytes} / kLineRowBytes * kLineRowData);
}

const char* validate_args(KernelFamily family, const CollectiveArgs& args, std::uint32_t blocks) {
  const ScratchShape& shape = args.shape;
  if (shape.ranks == 0 || shape.ranks > kMaxRanks) return "the number of ranks is not 1 to 8";
  if (args.rank >= shape.ranks) return "the rank is not less than the number of ranks";
  if (args.root >= shape.ranks) return "the root is not less than the number of ranks";
  if (args.stages != 1 && args.stages != 2) return "stages is neither 1 nor 2";
  if (shape.slots < 4 || !std::has_single_bit(shape.slots))
    return "the slots of a ring are not a power of 2 from 4 on";
  if (shape.slot_bytes == 0 || shape.slot_bytes % kScratchGranule != 0)
    return "slot_bytes is not a multiple of 128";
  if (shape.cell_bytes % kCellRowBytes != 0 || shape.cell_bytes > kMaxCellRegion)
    return "cell_bytes is not a multiple of 1024, up to 32 MiB";
  for (std::uint32_t rank = 0; rank < shape.ranks; ++rank)
    if (args.scratch[rank] == nullptr || !is_aligned(args.scratch[rank], kScratchGranule))
      return "the scratch of a rank is missing, or not aligned to 128 bytes";
  if (args.counts == nullptr || !is_aligned(args.counts, kScratchGranule))
    return "the rank's counts are missing, or not aligned to 128 bytes";
  if (args.wait_ctx.abort_flag == nullptr) return "there is no abort word";
  if (args.wait_ctx.status == nullptr || args.wait_ctx.reports == nullptr)
    return "there is no status record, or no count of reports";
  if (blocks == 0) return "there are no blocks";
  if (family != KernelFamily::channels) {
    if (blocks > kCallParts) return "there are more blocks than a call has parts";
    if (family == KernelFamily::lines) {
      if (const char* const why = why_not_by_lines(args)) return why;
    } else if (args.count > max_by_cells(shape, args.op, args.type, args.stages)) {
      return "the buffer is too large for cells in this scratch";
    }
  } else {
    if (args.channels == 0 || args.channels > shape.channels)
      return "channels is not 1 to those of the scratch";
    if (blocks > args.channels) return "there are more blocks than channels";
    if (args.tile_bytes == 0 || args.tile_bytes % kScratchGranule != 0 ||
        args.tile_bytes > shape.slot_bytes)
      return "tile_bytes is not a multiple of 128, up to slot_bytes";
    if (const char* const why = why_not_over_relays(args)) return why;
    if (args.lag < 2 || args.lag + 2U > shape.slots) return "lag is not 2 to slots - 2";
  }
  if (args.count == 0) return nullptr;
  const bool is_root = args.rank == args.root;
  const bool reads = args.op != CollectiveOp::broadcast || is_root;
  const bool writes = args.op != CollectiveOp::reduce || is_root;
  if (reads && args.in == nullptr) return "there is no input buffer";
  if (writes && args.out == nullptr) return "there is no output buffer";
  const std::size_t element = size_of(args.type);
  if ((reads && !is_aligned(args.in, element)) || (writes && !is_aligned(args.out, element)))
    return "a buffer is not aligned to its elements";
  return nullptr;
}

}  // namespace polypath
