// How calls by cells are counted, in the scratch of each rank (collective_ll.cuh).
#pragma once

#include <cstdint>

#include "collectives/kernels/collective_args.h"
#include "simt/platform.cuh"

namespace polypath::cells {

SIMT_DEVICE std::uint64_t* calls_of(const CollectiveArgs& args) {
  return reinterpret_cast<std::uint64_t*>(args.counts + ScratchLayout::calls());
}

/// One thread of each block, after all threads of the block have read the count.
SIMT_DEVICE void count_share(const CollectiveArgs& args, unsigned thread = 0) {
  if (simt::thread_index() != thread) return;
  const std::uint32_t blocks = simt::grid_size();
  const std::uint32_t rest = simt::block_index() == 0 ? kCallParts % blocks : 0;
  simt::red_add_relaxed(calls_of(args), std::uint64_t{kCallParts / blocks + rest});
}

}  // namespace polypath::cells
