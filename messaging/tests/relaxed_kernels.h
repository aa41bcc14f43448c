// Parameters of the test kernels of relaxed_kernels.cu.
#pragma once

#include "polypath/device/detail/hash_table_view.hpp"
#include "polypath/device/detail/source_partition_view.hpp"

namespace polypath::test {

/// Batches that one group matches one after the other, in the same storage.
struct RelaxedRow {
  device::match_batch first;  ///< matched before, unless it has no results
  device::match_batch batch;
  device::match_outcome* outcome;
  std::uint64_t seed;
  bool by_warp;  ///< else by the block
};

/// A batch by all blocks.
struct GridRow {
  device::match_batch batch;
  device::match_outcome* outcome;
  unsigned char* workspace;
  std::uint32_t capacity;
  std::uint32_t* meetings;
};

struct MeetingRow {
  std::uint32_t* meetings;
  std::uint32_t* words;
  std::uint32_t* wrong;
  std::uint32_t* ends;
};

}  // namespace polypath::test
