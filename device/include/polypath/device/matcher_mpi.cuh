// matcher<mpi>: by a warp or a block, with tables in shared memory.
#pragma once

#include "polypath/device/detail/batch_checks.cuh"
#include "polypath/device/detail/key_chains.cuh"
#include "polypath/device/detail/matcher.cuh"
#include "polypath/device/detail/mutants.hpp"
#include "polypath/device/detail/wildcard_rounds.cuh"
#include "polypath/device/group.cuh"

namespace polypath::device {

template <unsigned kCapacity>
class matcher<mpi, kCapacity> {
 public:
  using storage = mpi_storage<kCapacity>;

  template <typename Group>
  POLYPATH_DEVICE static match_outcome match(const Group& group, storage& of_group,
                                             const match_batch& batch) {
    storage& memory = as_shared(of_group);
    const unsigned rank = group.rank();
    const unsigned size = group.size();
    if (batch.message_count > kCapacity || batch.receive_count > kCapacity) {
      detail::match_nothing(batch, rank, size);
      return detail::refused(match_status::full, 0);
    }
    // What a call clears before its first barrier, no thread uses after the last one of the call
    // before.
    const detail::key_chains<kCapacity> chains(memory, batch, rank, size);
    chains.clear();
    group.sync();
    chains.enter_receives();
    POLYPATH_MUTANT_OMITS(match_mutant::no_barrier_of_tables)
    group.sync();
    chains.enter_messages();
    group.sync();
    if (const std::uint64_t reason = chains.reason(); reason != 0) {
      detail::match_nothing(batch, rank, size);
      group.sync();
      return detail::refused(static_cast<match_status>(reason >> 32),
                             static_cast<std::uint32_t>(reason));
    }
    const bool any_wildcard = chains.any_wildcard();
    const detail::wildcard_rounds<kCapacity> rounds(memory, chains, batch, rank, size);
    if (any_wildcard) {
      rounds.prepare();
      chains.template pair_short_groups<true>();
    } else {
      chains.template pair_short_groups<false>();
    }
    group.sync();
    const bool any_long_group = chains.any_long_group();
    if (any_long_group) {
      chains.mark_long_groups();
      group.sync();
      chains.count_long_groups();
      group.sync();
      if (any_wildcard)
        chains.template pair_long_groups<true>();
      else
        chains.template pair_long_groups<false>();
      group.sync();
    }
    if (any_wildcard) {
      rounds.choose(group);
      if (any_long_group) {
        chains.unmark_taken();
        group.sync();
        chains.count_long_groups_of_messages();
        group.sync();
      }
      chains.pair_the_rest();
      group.sync();
    }
    return chains.write_results();
  }
};

}  // namespace polypath::device
