// matcher<mpi>: by a warp or a block, with tables in shared memory.
#pragma once

#include "polypath/device/group.cuh"
#include "polypath/device/match_checks.cuh"
#include "polypath/device/matcher.cuh"
#include "polypath/device/matcher_wildcards.cuh"

namespace polypath::device {

template <unsigned kCapacity>
class matcher<mpi, kCapacity> {
  static_assert(kCapacity >= 32 && kCapacity <= 1024 && (kCapacity & (kCapacity - 1)) == 0,
                "a matcher of one block has room for 32 to 1024, a power of two");

 public:
  using storage = mpi_storage<kCapacity>;

  template <typename Members>
  POLYPATH_DEVICE static match_outcome match(const Members& group, storage& memory,
                                             const match_batch& batch) {
    const unsigned rank = group.rank();
    const unsigned size = group.size();
    const bool is_full = batch.message_count > kCapacity || batch.receive_count > kCapacity;
    if (is_full) {
      detail::match_nothing(batch, rank, size);
      return {match_status::full, 0, 0, 0, 0, 0};
    }
    const std::uint32_t slots_log2 = detail::log2_above(2 * batch.receive_count);
    const mpi_phases<in_shared> phases(tables_in(memory, slots_log2), batch, rank, size);
    phases.clear();
    group.sync();
    phases.enter_receives();
    group.sync();
    phases.enter_messages();
    group.sync();
    if (phases.is_refused()) {
      detail::match_nothing(batch, rank, size);
    } else {
      phases.give_out_lists();
      group.sync();
      phases.fill_lists();
      if (!planted(MatchFault::no_barrier_of_tables)) group.sync();
      constexpr unsigned kWords = sizeof(memory.bits[0]) / sizeof(memory.bits[0][0]);
      phases.template find_ranks<kWords>(memory.bits[rank / kWarp]);
      group.sync();
      phases.order_lists();
      group.sync();
      if (phases.wildcards() != 0) {
        if (rank < kWarp) phases.choose_for_wildcards();
        group.sync();
      }
      phases.take_the_rest();
      group.sync();
    }
    const match_outcome outcome = phases.outcome();
    group.sync();  // the next call begins with other tables
    return outcome;
  }

 private:
  POLYPATH_DEVICE static mpi_tables<in_shared::index> tables_in(storage& memory,
                                                                std::uint32_t slots_log2) {
    return {memory.keys,
            memory.receive_counts,
            memory.message_counts,
            memory.receive_begins,
            memory.message_begins,
            memory.taken,
            memory.receives,
            memory.messages,
            memory.receive_slots,
            memory.receive_ranks,
            memory.message_slots,
            memory.message_ranks,
            memory.longs,
            &memory.all,
            slots_log2,
            kCapacity};
  }
};

}  // namespace polypath::device
