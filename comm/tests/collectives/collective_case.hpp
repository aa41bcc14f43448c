// One collective call as a test sees it: what is asked for, random inputs, and what every rank must
// have afterwards, bit by bit. Shared by the tests of the kernels' host builds and of the kernels on
// GPUs.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "collectives/kernels/kernels.hpp"

namespace polypath::test {

using Bytes = std::vector<unsigned char>;
using Random = std::mt19937_64;

/// How many random rows a test makes: of orders and bytes there are never enough, of what a
/// sanitizer looks for a few show it all.
#if defined(__SANITIZE_ADDRESS__)
constexpr int random_rows(int rows) { return (rows + 3) / 4; }
#else
constexpr int random_rows(int rows) { return rows; }
#endif

enum class Placement : std::uint8_t {
  apart,     ///< `in` and `out` do not overlap
  in_place,  ///< the same address
  own_part   ///< reduce_scatter, all_gather: `out`, `in` is this rank's part of the other
};

struct CollectiveCase {
  KernelFamily family = KernelFamily::channels;
  CollectiveOp op = CollectiveOp::allreduce;
  DataType type = DataType::float32;
  Operator reduction = Operator::sum;
  std::uint32_t ranks = 2;
  std::uint32_t root = 0;
  std::uint64_t count = 0;
  int stages = 2;
  std::uint32_t blocks = 1;
  std::uint32_t tile_bytes = 1024;
  std::uint32_t lag = 2;
  Placement placement = Placement::apart;
  std::uint32_t in_shift = 0;  ///< elements by which a buffer is not aligned to 16 bytes
  std::uint32_t out_shift = 0;
  /// Ranks by node, where elements are combined in each node first; empty: all are of one.
  std::vector<std::vector<std::uint32_t>> nodes = {};

  std::uint64_t in_bytes() const;
  std::uint64_t out_bytes() const;
  /// The size of the buffer that holds both when they are not apart: the larger one.
  std::uint64_t part_offset(std::uint32_t rank) const;
  std::string text() const;
};

/// Everything at random: `most_bytes` bounds every buffer, the shape everything else.
CollectiveCase random_case(Random& random, const ScratchShape& shape, std::uint64_t max_bytes,
                           std::uint32_t max_blocks);

/// What rank `rank` sends: no NaN among them, and values whose order of summation matters.
Bytes random_input(Random& random, const CollectiveCase& what);

/// What `rank` must receive, from the inputs of all ranks; empty where `out` does not count.
Bytes expected_output(const CollectiveCase& what, const std::vector<Bytes>& inputs,
                      std::uint32_t rank);

/// A rank's memory for one call: buffers, with guard bytes around them, as they are before it and
/// must be after it.
struct Image {
  Bytes before;
  Bytes after;
  std::uint64_t in_at;  ///< offsets; the memory is aligned to 16 bytes
  std::uint64_t out_at;
};

/// One a rank, with random inputs and poison everywhere else.
std::vector<Image> images_of(Random& random, const CollectiveCase& what);

/// Compares what a rank has after the call; empty when it is right.
std::string difference(const Image& image, const unsigned char* result);

/// The arguments that do not depend on memory: the caller adds addresses.
CollectiveArgs args_of(const CollectiveCase& what, const ScratchShape& shape, std::uint32_t rank);

}  // namespace polypath::test
