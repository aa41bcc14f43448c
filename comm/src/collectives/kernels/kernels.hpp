// The collective kernels as the host sees them: which kernel runs a call, where its code is, how
// large a scratch must be, what a call may ask for. Pure functions; launching is the caller's.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "collectives/collective_types.h"
#include "collectives/kernels/collective_args.h"
#include "collectives/kernels/norm_args.h"
#include "collectives/kernels/sum_args.h"

namespace polypath {

/// How a kernel moves bytes (collective_ll.cuh, collective_ll128.cuh, collective_simple.cuh).
enum class KernelFamily : std::uint8_t {
  cells,    ///< data and flags in the same words: the lowest latency, a third more bytes
  lines,    ///< a flag in each 128 bytes: 1/15 more bytes; only where lines come whole
  channels  ///< tiles through rings of slots: all sizes, all of a link's bandwidth
};

/// Which of the kernels of a family runs a call.
struct KernelForm {
  SumOrder order = SumOrder::rank;
  bool is_uneven = false;  ///< reduce_scatter and all_gather of parts of different lengths
};

inline constexpr std::array kKernelFamilies{KernelFamily::cells, KernelFamily::lines,
                                            KernelFamily::channels};

constexpr const char* to_string(KernelFamily family) noexcept {
  switch (family) {
    case KernelFamily::cells: return "cells";
    case KernelFamily::lines: return "lines";
    case KernelFamily::channels: return "channels";
  }
  return "?";
}

struct CollectiveKernel {
  const char* name;  ///< for cuModuleGetFunction
  /// For cuModuleLoadData: one for all kernels of a data type. In a build without a CUDA compiler a
  /// short text, which a real driver refuses and the simulated one takes.
  std::span<const unsigned char> image;
};

/// The kernel that runs `op` on `type`: a grid of blocks of kCollectiveThreads threads, no dynamic
/// shared memory, one parameter (UnevenArgs, which begins with the CollectiveArgs that those take
/// whose form is neither a tree nor uneven). All blocks of a rank must be able to run at once;
/// other ranks may have other numbers. Calls by cells or lines take up to kCallParts blocks, calls
/// by channels as many as there are channels. The name is null where there is none: lines are for
/// even parts, and for sums in rank order.
CollectiveKernel collective_kernel(KernelFamily family, CollectiveOp op, DataType type,
                                   KernelForm form = {});

/// Whether that kernel takes all of UnevenArgs.
constexpr bool takes_uneven_args(CollectiveOp op, DataType type, KernelForm form) {
  const bool combines = op == CollectiveOp::allreduce || op == CollectiveOp::reduce_scatter ||
                        op == CollectiveOp::reduce;
  return form.is_uneven || (form.order == SumOrder::tree && combines && depends_on_order(type));
}

/// The kernel that combines elements of `type` within one GPU's memory: any grid of blocks of
/// kCollectiveThreads threads, one parameter (SumArgs). Waits for nothing.
CollectiveKernel sum_kernel(DataType type, SumOrder order = SumOrder::rank);

/// What normalises rows of `type`, float16 or bfloat16: any grid of blocks of kCollectiveThreads
/// threads, one parameter (NormArgs). `is_fused`: with the allreduce, as a call by cells; else it
/// waits for nothing.
CollectiveKernel norm_kernel(bool is_fused, DataType type);
constexpr bool can_normalise(DataType type) {
  return type == DataType::float16 || type == DataType::bfloat16;
}

/// True for the operations that combine elements: these have an operator.
constexpr bool combines(CollectiveOp op) {
  return op == CollectiveOp::allreduce || op == CollectiveOp::reduce_scatter ||
         op == CollectiveOp::reduce;
}

/// Bytes of scratch, on each rank.
constexpr std::uint64_t scratch_bytes(const ScratchShape& shape) {
  return ScratchLayout{shape}.bytes();
}

/// Bytes of the memory of lines, on each rank.
constexpr std::uint64_t line_memory_bytes(const ScratchShape& shape) {
  return LineLayout{shape}.bytes();
}

/// The most elements (`count`) of a call by cells in a scratch of this shape, or by lines.
std::uint64_t max_by_cells(const ScratchShape& shape, CollectiveOp op, DataType type, int stages);
std::uint64_t max_by_lines(const ScratchShape& shape, CollectiveOp op, DataType type, int stages);

/// The most rows of a call that normalises them in one kernel; 0: of this length none.
std::uint64_t max_norm_rows(const ScratchShape& shape, std::uint32_t hidden);

/// What is wrong with a call, as a sentence for people; nullptr: nothing. Addresses are looked at
/// for null and alignment alone. For checks and tests: a call that runs needs none of it.
const char* validate_args(KernelFamily family, const CollectiveArgs& args, std::uint32_t blocks);

}  // namespace polypath
