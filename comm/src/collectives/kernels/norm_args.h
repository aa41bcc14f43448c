// What the kernels are told that normalise rows after an allreduce: all_reduce_norm.cuh, in one
// kernel; rms_norm.cuh, what has been summed. C++17, plain data.
#pragma once

#include <cstdint>

#include "collectives/kernels/collective_args.h"

namespace polypath {

/// Rows are divided into units of these elements of 16 bits: what a warp moves at once by cells.
inline constexpr std::uint32_t kNormUnit = kCellRowData / 2;
/// The most units of a row.
inline constexpr std::uint32_t kMaxNormUnits = 128;
/// The most blocks that share a row.
inline constexpr std::uint32_t kMaxNormTeam = 16;
/// Rows have a multiple of these elements: words of 8 bytes, also of what has one byte an element.
inline constexpr std::uint32_t kNormGranule = 8;

constexpr std::uint32_t norm_units(std::uint32_t hidden) {
  return (hidden + kNormUnit - 1) / kNormUnit;
}

/// Rows of float16 or bfloat16, one after another, aligned to 16 bytes. `call` as of an allreduce
/// by cells in one stage: `in` and `out` are the rows of input and output, `count` all elements.
/// `out` and `in` may be the same memory, `residual` and `residual_out` too; else all are apart.
/// The kernel that only normalises takes of `call` no more than `in`, `out` and the type.
struct NormArgs {
  CollectiveArgs call;
  const void* residual;  ///< null: nothing is added
  void* residual_out;
  const void* weight;  ///< a row
  const float* scale;  ///< null: the output has the elements' type; else FP8 (e4m3)
  std::uint32_t rows;
  std::uint32_t hidden;  ///< elements of a row
  float epsilon;
  float inverse_hidden;  ///< 1 / hidden, rounded
  std::uint32_t team;    ///< blocks that share a row, 1 to the number of blocks
};

}  // namespace polypath
