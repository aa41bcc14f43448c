// Mutants of device code, by subject (mutant_switch.hpp).
#pragma once

#include "polypath/device/detail/mutant_switch.hpp"

#if defined(POLYPATH_MUTANTS)
#include "polypath/device/scope.cuh"
#endif

namespace polypath::device {

#if defined(POLYPATH_MUTANTS)
/// A packet whose flag follows its data.
template <typename Scope, typename Packet>
void store_in_parts(Packet* to, const Packet& packet) {
  for (int i = 0; i < 3; ++i) store_relaxed<Scope>(&to->data[i], packet.data[i]);
  store_relaxed<Scope>(&to->lap, packet.lap);
}
#endif

/// Defects of waits.
enum class wait_mutant {
  none,
  no_look_at_the_abort_word,
  no_look_at_the_reports,  ///< every wait after a timeout takes its time, too
  goes_on_unreported       ///< past the time limit: what comes after tells what never came
};

/// Defects of queues.
enum class queue_mutant {
  none,
  no_credit,              ///< a producer overwrites what has not been read
  credit_before_reading,  ///< a segment is given back while it is read
  credit_of_other_lap,    ///< a lap too early
  flag_behind_the_data,   ///< instead of with it
  first_packet_alone,     ///< of a cell of several packets, one is looked at
  looks_at_all_packets,   ///< over and over, while none of them is there
  any_lap,                ///< any but zero is taken for the right one
  two_looks_at_the_head,  ///< try_pop takes turns that another has taken
  no_release,             ///< what was stored before may come after the item
  no_acquire              ///< what is loaded after the item may be older
};

/// Defects of pairs.
enum class spsc_mutant {
  none,
  no_credit,
  credit_before_reading,
  turn_forgotten,  ///< the next kernel begins again
  answers_by_warp  ///< one warp of a group aborts, and the others do not know
};

/// Defects of active messages.
enum class active_message_mutant {
  none,
  replies_among_requests,    ///< one queue for both
  no_progress_while_full,    ///< a wait for room executes nothing
  executed_before_the_reply  ///< counted before its reply has been sent
};

/// Defects of channels.
enum class channel_mutant {
  none,
  no_credit,                   ///< a sender overwrites what has not been read
  unexpected_forgotten,        ///< ... what has been read, and no receive has asked for
  part_of_a_message,           ///< what has come in part is taken for whole
  announced_before_the_bytes,  ///< of a large message
  no_fence_behind_the_bytes,
  no_acquire,
  sends_overtake,     ///< a small one, one that waits for room
  last_posted_first,  ///< a message takes the last receive that would have it
  last_arrived_first  ///< a receive takes the last message that it would have
};

/// Defects of pools.
enum class pool_mutant {
  none,
  bits_not_compared,    ///< a bit is taken though another has taken it meanwhile
  bit_not_looked_at,    ///< what is free is freed again
  class_not_looked_at,  ///< a handle of another class than its slab
  no_promise_returned,  ///< what a full gate was raised by stays
  gate_not_lowered,     ///< a freed block is not counted
  late_class,           ///< a slab that is raised in vain, being of another class, is used
  no_release,           ///< stores to a block may come after its being freed
  no_acquire,           ///< loads of a block may be older than its allocation
  same_rank             ///< two threads of a warp get the same block
};

/// Defects of pools of several GPUs.
enum class shared_pool_mutant {
  none,
  no_release,  ///< stores of the last holder may come after the block's return
  next_rank    ///< a block goes to the rank after its owner
};

/// Defects of meetings and of what is made of them.
enum class collective_mutant {
  none,
  exact_value,                 ///< a word that is past the value ends no wait
  word_loaded_plainly,         ///< not by an acquire
  barrier_without_release,     ///< nothing orders it after what was stored
  barrier_of_neighbours,       ///< it waits for one rank
  barrier_not_counted,         ///< each counts from the same number
  group_ahead_of_its_barrier,  ///< some of the group do not wait for the others
  own_part_first,              ///< the sum begins with this rank's own elements
  slices_overlap,              ///< two ranks combine the same elements
  // of collectives.cuh
  no_first_barrier,   ///< what is sent comes while its receiver still uses the memory
  no_last_barrier,    ///< ranks go on before all has come
  wrong_slot,         ///< a rank's part goes to the place of the next rank's
  relaxed_arrival,    ///< of a grid: what a block stored may come after the barrier
  arrivals_not_reset  ///< the next barrier of the grid counts from where this one ended
};

/// Defects of meetings of a grid.
enum class grid_mutant {
  none,
  no_release,               ///< what a block stored may come after the meeting
  no_acquire,               ///< a block may see what was there before it
  does_not_wait,            ///< for the last block
  ends_before_the_others,   ///< the first block takes itself for the last one
  first_block_is_as_others  ///< the word does not come back to where it began
};

/// Defects of partitioned matching.
enum class partition_mutant {
  none,
  taken_twice,         ///< a message stays free
  last_not_first,      ///< of the messages that a receive accepts
  all_ranks_alike,     ///< receives of one key take one message
  kinds_at_once,       ///< those of any tag choose together with others
  tag_alone,           ///< source and communicator are not compared
  matched_taken_anew,  ///< a receive that has a message takes a later one, too
  no_barrier           ///< of a block: a warp looks before the one ahead has written
};

/// Defects of tables and of matching by them.
enum class hash_mutant {
  none,
  counts_not_cleared,  ///< what an earlier batch left
  entered_unasked,     ///< a slot that another took in the meantime is taken
  first_slot_alone,    ///< a search ends where it begins
  one_message_a_key,   ///< each receive of a key gets the same
  all_ranks_alike,     ///< messages of one key have one rank
  low_half_alone,      ///< of keys: source and communicator are not compared
  tag_alone,           ///< of unique keys: the key is not looked at where tags are the same
  first_slots_alone,   ///< of unique keys: a search ends where the first four are full
  second_unnoticed,    ///< of unique keys: a message is taken by two receives
  no_barrier           ///< of a block: it looks before all have entered
};

/// Defects of splitting.
enum class split_mutant {
  none,
  in_no_order,         ///< a partition is matched as its elements came there
  long_in_no_order,    ///< the same of one that a block takes
  warp_counts_as_one,  ///< one thread that adds for all adds for itself
  rooms_given_twice,   ///< partitions share one
  crowded_unnoticed,   ///< what a room has no place for is lost
  places_given_twice   ///< partitions of a crowded batch end in the same place
};

/// Defects of matching in MPI's order.
enum class match_mutant {
  none,
  any_order_of_receives,  ///< as they came into their group
  any_order_of_messages,
  any_order_of_long_groups,
  wildcards_overtake,  ///< they take what receives before them have taken
  keys_do_not_shift,   ///< a key's receives stay with their messages when a wildcard took one
  shift_is_one_early,  ///< ... or move for a message that comes after theirs, too
  no_any_any,          ///< receives from any source with any tag find no message
  looks_are_stale,     ///< a wildcard takes what it has seen, though others took it
  first_of_a_look,     ///< a wildcard looks at 32 messages, and at no more
  // for a warp or block alone
  no_barrier_of_tables,
  no_barrier_of_rows,  ///< bits are set while others clear them
  no_barrier_of_bits,  ///< choices begin before all are set
  no_barrier_of_rounds,
  long_is_not_noticed,    ///< a long chain is walked as far as a short one may be
  taken_keep_their_bits,  ///< in bitmaps of long groups
  mixed_wildcards
};

}  // namespace polypath::device
