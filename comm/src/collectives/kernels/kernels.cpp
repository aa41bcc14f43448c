#include "collectives/kernels/kernels.hpp"

#include <bit>

#include "collectives/kernels/images.hpp"
#include "collectives/kernels/rank_roles.h"

namespace polypath {
namespace {

struct KernelsOfType {
  const char* cells;
  const char* channels;
  const char* sums;  // of those that combine
  std::span<const unsigned char> (*image)() noexcept;
};

KernelsOfType kernels_of(CollectiveOp op, DataType type) {
  if (!combines(op))
    return {"polypath_cells_bytes", "polypath_channels_bytes", nullptr, &collectives_bytes_image};
  switch (type) {
    case DataType::int8:
    case DataType::uint8:
      return {"polypath_cells_int8", "polypath_channels_int8", "polypath_sums_int8",
              &collectives_int8_image};
    case DataType::int32:
    case DataType::uint32:
      return {"polypath_cells_int32", "polypath_channels_int32", "polypath_sums_int32",
              &collectives_int32_image};
    case DataType::int64:
    case DataType::uint64:
      return {"polypath_cells_int64", "polypath_channels_int64", "polypath_sums_int64",
              &collectives_int64_image};
    case DataType::float16:
      return {"polypath_cells_float16", "polypath_channels_float16", "polypath_sums_float16",
              &collectives_float16_image};
    case DataType::bfloat16:
      return {"polypath_cells_bfloat16", "polypath_channels_bfloat16", "polypath_sums_bfloat16",
              &collectives_bfloat16_image};
    case DataType::float32:
      return {"polypath_cells_float32", "polypath_channels_float32", "polypath_sums_float32",
              &collectives_float32_image};
    case DataType::float64:
      return {"polypath_cells_float64", "polypath_channels_float64", "polypath_sums_float64",
              &collectives_float64_image};
  }
  return {};
}

bool is_aligned(const void* address, std::size_t bytes) {
  return std::bit_cast<std::uintptr_t>(address) % bytes == 0;
}

std::uint64_t longest_piece_by_cells(const ScratchShape& shape) {
  return shape.cell_bytes / kCellRowBytes * kCellRowData;
}

}  // namespace

CollectiveKernel collective_kernel(KernelFamily family, CollectiveOp op, DataType type) {
  const KernelsOfType kernels = kernels_of(op, type);
  return {family == KernelFamily::cells ? kernels.cells : kernels.channels, kernels.image()};
}

CollectiveKernel sum_kernel(DataType type) {
  const KernelsOfType kernels = kernels_of(CollectiveOp::allreduce, type);
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
  CollectiveArgs args{};
  args.op = op;
  args.type = type;
  args.stages = static_cast<std::uint8_t>(stages);
  args.shape = shape;
  args.count = 1;
  std::uint64_t most = longest_piece_by_cells(shape);
  const Pieces pieces = part_of(args).pieces;
  if (pieces.sliced)
    most = most / kSliceGranule * kSliceGranule * (shape.ranks - (pieces.skip < kMaxRanks));
  return most / size_of(type);
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
  if (shape.cell_bytes % kCellRowBytes != 0) return "cell_bytes is not a multiple of 1024";
  for (std::uint32_t rank = 0; rank < shape.ranks; ++rank)
    if (args.scratch[rank] == nullptr || !is_aligned(args.scratch[rank], kScratchGranule))
      return "the scratch of a rank is missing, or not aligned to 128 bytes";
  if (args.wait_ctx.abort_flag == nullptr) return "there is no abort word";
  if (args.wait_ctx.status == nullptr || args.wait_ctx.reports == nullptr)
    return "there is no status record, or no count of reports";
  if (blocks == 0) return "there are no blocks";
  if (family == KernelFamily::cells) {
    if (blocks > kCallParts) return "there are more blocks than a call has parts";
    if (args.count > max_by_cells(shape, args.op, args.type, args.stages))
      return "the buffer is too large for cells in this scratch";
  } else {
    if (blocks > shape.channels) return "there are more blocks than channels";
    if (args.tile_bytes == 0 || args.tile_bytes % kScratchGranule != 0 ||
        args.tile_bytes > shape.slot_bytes)
      return "tile_bytes is not a multiple of 128, up to slot_bytes";
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
