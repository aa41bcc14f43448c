// Defects of the kernel that copies small blocks (device/detail/mutant_switch.hpp).
#pragma once

#include "polypath/device/detail/mutant_switch.hpp"

namespace polypath {

enum class CopyBlocksMutant {
  none,
  block_stride,        ///< teams of one thread block pass over all blocks: those of others again
  stops_at_last_turn,  ///< what is left when not all teams have a block is not copied
  no_next_block,       ///< a team copies its first block over and over
  whole_words_only     ///< the bytes after the last whole word are not copied
};

}  // namespace polypath
