// One call that sums rows over all ranks, adds a residual and normalises: what is asked for, random
// inputs, and what every rank must have afterwards, bit by bit. Shared by the tests of the kernels'
// host builds and of calls.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collective_case.hpp"

namespace polypath::test {

struct NormCase {
  DataType type = DataType::bfloat16;
  std::uint32_t ranks = 2;
  std::uint32_t rows = 1;
  std::uint32_t hidden = 8;
  float epsilon = 1e-6F;
  bool to_float8 = false;
  bool has_residual = true;
  bool in_place = false;           ///< the output takes the place of the input
  bool residual_in_place = false;  ///< ... of the residual
  std::uint32_t blocks = 1;
  std::vector<std::uint32_t> rank_blocks = {};  ///< of each rank; none: all have `blocks`
  std::uint32_t team = 1;                       ///< blocks that share a row
  /// As CollectiveCase::nodes.
  std::vector<std::vector<std::uint32_t>> nodes = {};

  [[nodiscard]] std::uint32_t blocks_of(std::uint32_t rank) const;
  [[nodiscard]] std::uint64_t bytes() const { return std::uint64_t{rows} * hidden * 2; }
  [[nodiscard]] std::string text() const;
};

/// Rows of up to `max_hidden` elements, and as many as make `max_bytes`.
NormCase random_norm(Random& random, std::uint32_t ranks, std::uint32_t max_hidden,
                     std::uint64_t max_bytes, std::uint32_t max_blocks);

/// A rank's memory for one call, with guard bytes between the buffers; `in_at` and `out_at` are those
/// of input and output.
struct NormImage : Image {
  std::uint64_t residual_at = 0;
  std::uint64_t residual_out_at = 0;
  std::uint64_t weight_at = 0;
  std::uint64_t scale_at = 0;
};

/// One a rank. The residual and the weight are the same on all, as their values of programs are.
std::vector<NormImage> norm_images(Random& random, const NormCase& what);

/// The arguments that do not depend on memory: the caller adds addresses.
NormArgs norm_args_of(const NormCase& what, const ScratchShape& shape, std::uint32_t rank);

}  // namespace polypath::test
