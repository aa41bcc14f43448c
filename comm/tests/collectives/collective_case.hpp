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
  std::uint32_t blocks = 1;  ///< and channels
  /// Blocks of each rank, up to `blocks`; empty: all have `blocks`.
  std::vector<std::uint32_t> rank_blocks = {};
  std::uint32_t tile_bytes = 1024;
  std::uint32_t lag = 2;
  Placement placement = Placement::apart;
  std::uint32_t in_shift = 0;  ///< elements by which a buffer is not aligned to 16 bytes
  std::uint32_t out_shift = 0;
  std::vector<std::uint32_t> out_shifts =
      {};  ///< of each rank, for buffers apart; empty: out_shift
  /// Ranks whose `out` others may store results into, bit by bit.
  std::uint32_t windows = ~0U;
  bool has_windows = true;  ///< false: no rank announces any, or asks
  bool is_relayed = false;  ///< over all relays that there are
  SumOrder order = SumOrder::rank;
  /// Elements of each rank's part of an uneven reduce_scatter or all_gather, of which `count` is the
  /// longest; empty: all have `count`.
  std::vector<std::uint64_t> parts = {};
  std::vector<std::vector<unsigned char>> inputs = {};  ///< of each rank; empty: random ones
  /// Ranks by node, where elements are combined in each node first; empty: all are of one.
  std::vector<std::vector<std::uint32_t>> nodes = {};

  KernelForm form() const { return {order, !parts.empty()}; }
  std::uint32_t blocks_of(std::uint32_t rank) const;
  /// The length of a rank's part, in elements, and where it begins in the buffer of all parts.
  std::uint64_t part_count(std::uint32_t rank) const { return parts.empty() ? count : parts[rank]; }
  std::uint64_t part_begin(std::uint32_t rank) const;
  /// Which rank makes no difference where parts are even.
  std::uint64_t in_bytes(std::uint32_t rank = 0) const;
  std::uint64_t out_bytes(std::uint32_t rank = 0) const;
  /// The size of the buffer that holds both when they are not apart: the larger one.
  std::uint64_t part_offset(std::uint32_t rank) const;
  std::string text() const;
  std::string parts_text() const;
  std::string blocks_text() const;
  std::string windows_text() const;
};

/// Everything at random: `most_bytes` bounds every buffer, the shape everything else.
CollectiveCase random_case(Random& random, const ScratchShape& shape, std::uint64_t max_bytes,
                           std::uint32_t max_blocks);

/// Gives a reduce_scatter or an all_gather parts of random lengths up to its count, some of them
/// empty.
void make_uneven(Random& random, CollectiveCase& what);

/// Lets results go straight into the buffers of some ranks, which lie in different places.
void make_windows_unlike(Random& random, CollectiveCase& what);

/// Gives each rank a number of blocks of its own.
void make_blocks_unlike(Random& random, CollectiveCase& what);

/// Lines are for even parts, and for sums in rank order: what they have no kernel for goes by
/// channels.
void take_other_family(const ScratchShape& shape, CollectiveCase& what);

/// What rank `rank` sends: no NaN among them, and values whose order of summation matters.
Bytes random_input(Random& random, const CollectiveCase& what, std::uint32_t rank = 0);

/// What `rank` must receive, from the inputs of all ranks; empty where `out` does not count.
Bytes expected_output(const CollectiveCase& what, const std::vector<Bytes>& inputs,
                      std::uint32_t rank);

/// A rank's memory for one call: buffers, with guard bytes around them, as they are before it and
/// must be after it.
struct Image {
  Bytes before;
  Bytes after;
  std::uint64_t in_at;  ///< offsets; the memory is aligned to kWindowAlignment
  std::uint64_t out_at;
};

/// One a rank, with random inputs and poison everywhere else.
std::vector<Image> images_of(Random& random, const CollectiveCase& what);

/// Compares what a rank has after the call; empty when it is right.
std::string difference(const Image& image, const unsigned char* result);

/// The arguments that do not depend on memory: the caller adds addresses.
UnevenArgs args_of(const CollectiveCase& what, const ScratchShape& shape, std::uint32_t rank);

/// The elements of `inputs`, combined as the order of the call says: as a rank would have them that
/// had all these inputs.
Bytes combined_inputs(const CollectiveCase& what, const std::vector<Bytes>& inputs,
                      std::uint64_t first, std::uint64_t count);

}  // namespace polypath::test
