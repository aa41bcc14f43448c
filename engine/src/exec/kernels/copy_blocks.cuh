// Copies a table of blocks: team t of all teams of the grid copies blocks t, t + teams, ... A team
// is a warp, which has 4 KiB in flight. The next entry of the table is loaded while a block is
// copied, since the table is in host memory.
#pragma once

#include "exec/kernels/copy_blocks_args.h"
#include "exec/kernels/copy_blocks_mutants.h"
#include "simt/platform.cuh"

namespace polypath {

template <typename Team>
SIMT_DEVICE void copy_blocks(const Team& team, const CopyBlocksArgs& args) {
  const unsigned teams_per_block = simt::block_size() / team.size();
  const unsigned teams = has_mutant(CopyBlocksMutant::block_stride)
                             ? teams_per_block
                             : teams_per_block * simt::grid_size();
  // Neighbours in the table go to different thread blocks, so that a short table has work for all.
  std::uint32_t i = simt::thread_index() / team.size() * simt::grid_size() + simt::block_index();
  if (i >= args.count) return;
  CopyEnds next = simt::load_streaming(&args.blocks[i].ends);
  std::uint64_t next_bytes = simt::load_streaming(&args.blocks[i].bytes);
  for (;;) {
    const CopyEnds ends = next;
    const std::uint64_t bytes =
        has_mutant(CopyBlocksMutant::whole_words_only) ? next_bytes / 16 * 16 : next_bytes;
    i += teams;
    const bool is_last = has_mutant(CopyBlocksMutant::stops_at_last_turn)
                             ? i - i % teams + teams > args.count
                             : i >= args.count;
    if (!is_last && !has_mutant(CopyBlocksMutant::no_next_block)) {
      next = simt::load_streaming(&args.blocks[i].ends);
      next_bytes = simt::load_streaming(&args.blocks[i].bytes);
    }
    simt::copy_tile(
        team, simt::pointer_list<unsigned char, 1>{{reinterpret_cast<unsigned char*>(ends.dst)}, 1},
        reinterpret_cast<const unsigned char*>(ends.src), bytes);
    if (is_last) return;
  }
}

}  // namespace polypath
