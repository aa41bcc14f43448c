// Defects of the collectives' kernels (polypath/device/detail/mutants.hpp).
#pragma once

#include "polypath/device/detail/mutants.hpp"

namespace polypath {

enum class Fault {
  none,
  // of channels
  flag_before_data,      ///< the flag is set before the tile is written
  flag_without_fence,    ///< ... after it, but with no fence between
  no_wait_for_data,      ///< a tile is taken without waiting for it
  no_wait_for_credit,    ///< a slot is filled without asking whether it was taken
  credit_too_large,      ///< a ring is thought to have one slot more than it has
  credit_before_taking,  ///< a slot is given back before it was read
  counts_not_kept,       ///< a call begins to count anew
  own_part_first,        ///< the sum begins with this rank's own part
  channels_by_rank,      ///< every other rank begins at the last channel
  blocks_for_channels,   ///< a rank has as many channels as it has blocks
  // of channels whose results go straight into `out`
  window_not_awaited,     ///< a sender takes what was announced before
  window_lap_unchecked,   ///< ... what was announced for the call before
  window_call_unchecked,  ///< ... what was announced for a call of another kind
  window_misaligned,      ///< a place is announced that slots are there for
  window_of_own_input,    ///< ... of an all_to_all in place
  window_not_withdrawn,   ///< a call that timed out leaves its place announced
  direct_without_fence,   ///< the flag follows a direct tile with no fence between
  direct_tile_moved,      ///< the receiver copies a slot over it
  // of channels over relays
  relay_slots_shared,  ///< all channels over a relay have the same slots
  relay_slots_of_one,  ///< ... all pairs of ranks
  direct_over_relay,   ///< a receiver takes results for direct ones there as well
  // of sums as a tree
  ranks_in_turn,     ///< one after another
  node_not_rounded,  ///< to the type of the elements
  // of uneven parts
  parts_at_begin,    ///< of an all_gather, all at the place of the first
  peer_part_pushed,  ///< of an all_gather, as long as the receiver's
  // of both
  no_arrivals,           ///< ranks run ahead of those that have not begun the call
  call_not_compared,     ///< marks of calls that differ are taken for the same
  marks_not_alternated,  ///< every call uses the same marks
  // of cells, and of lines but for what is said of pairs and clearing
  halves_not_alternated,   ///< every call uses the same half
  flag_not_counted,        ///< every call uses the same flag
  half_a_pair_looked_at,   ///< only the first cell of a pair is waited for
  cells_not_cleared,       ///< what calls left is there when their flags come round
  call_counted_too_early,  ///< before all threads of the block know the call's number
  // of lines
  line_flag_early,       ///< a line is stored with its flag, and then again with its data
  older_flag_accepted,   ///< the flag that the half's call before had will do
  data_before_flag,      ///< data are kept as they were at the first look at a flag
  one_line_of_row_seen,  ///< only the first line of a thread is waited for
  // of norms
  part_not_waited_for,     ///< a row is normalised before the last rank's data are there
  squares_not_waited_for,  ///< ... before all warps have added their squares
  squares_in_other_order,  ///< neighbours first
  /// what blocks exchange is not loaded at once
  sum_loaded_before_its_flag
};

}  // namespace polypath
