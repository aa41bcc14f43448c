// Defects of matching in MPI's order that tests plant (mutants.hpp).
#pragma once

#include "polypath/device/detail/mutants.hpp"

namespace polypath::device {

enum class MatchFault {
  none,
  any_order_of_receives,  ///< as they came into their group
  any_order_of_messages,
  any_order_of_long_groups,
  wildcards_overtake,  ///< they take what receives before them have taken
  keys_do_not_shift,   ///< a key's receives stay with their messages when a wildcard took one
  shift_is_one_early,  ///< ... or move for a message that comes after theirs, too
  no_any_any,          ///< receives from any source with any tag find no message
  looks_are_stale,     ///< what it has seen a wildcard takes, whatever others took since
  first_of_a_look,     ///< a wildcard looks at 32 messages, and at no more
  // Of a warp or block alone.
  no_barrier_of_tables,
  no_barrier_of_rows,  ///< bits are set while others clear them
  no_barrier_of_bits,  ///< choices begin before all are set
  no_barrier_of_rounds,
  long_is_not_noticed,    ///< a long chain is walked as far as a short one may be
  taken_keep_their_bits,  ///< in bitmaps of long groups
  wildcards_in_no_order
};

}  // namespace polypath::device
