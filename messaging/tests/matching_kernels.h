// Parameters of the test kernels of matching_kernels.cu.
#pragma once

#include "polypath/device/detail/match_types.hpp"

namespace polypath::test {

/// Some batches, one after the other in one group's storage.
struct MatchRow {
  device::match_batch batch;
  device::match_outcome* outcome;
  std::uint32_t times;  ///< the same batch again
  bool by_warp;         ///< else by the block
};

}  // namespace polypath::test
