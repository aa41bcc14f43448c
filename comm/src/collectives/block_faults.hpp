// Defects of the share of blocks (polypath/device/detail/mutant_switch.hpp).
#pragma once

#include "polypath/device/detail/mutant_switch.hpp"

namespace polypath {

enum class BlockFault {
  none,
  busy_share_yields,     ///< blocks are taken from calls in flight
  issued_share_yields,   ///< ... from a call that is being issued
  lasting_blocks_yield,  ///< ... from captured calls
  pool_without_end,      ///< more blocks are taken than there are
  begun_calls_unseen     ///< ... from a call that began since its share was found idle
};

}  // namespace polypath
