// matcher<hashed_unique>: no wildcards, and no two messages, nor two receives, with one key (tag,
// source, communicator), which the caller promises and which is checked. A warp or block brings all
// envelopes into shared memory, enters the messages into a table (fingerprint_table.cuh), and looks
// for each receive's. Additions and exchanges in shared memory take long: so each message is first
// put where it belongs by a store, and those alone that another one took the place of are entered
// by exchanges; and a message notes which receive took it, which two such receives cannot both
// find.
#pragma once

#include <cstdint>

#include "polypath/device/detail/batch_checks.cuh"
#include "polypath/device/detail/fingerprint_table.cuh"
#include "polypath/device/detail/matcher.cuh"
#include "polypath/device/detail/mutants.hpp"
#include "polypath/device/group.cuh"

namespace polypath::device {

template <unsigned kCapacity>
class matcher<hashed_unique, kCapacity> {
 public:
  using storage = unique_storage<kCapacity>;

  /// As matcher<hashed>.
  template <typename Group>
  POLYPATH_DEVICE static match_outcome match(const Group& group, storage& of_group,
                                             const match_batch& batch, std::uint64_t seed = 0) {
    storage& memory = as_shared(of_group);
    const unsigned rank = group.rank();
    const unsigned size = group.size();
    if (batch.message_count > kCapacity || batch.receive_count > kCapacity) {
      detail::match_nothing(batch, rank, size);
      group.sync();
      return detail::refused(match_status::full, 0);
    }
    if (group.is_leader()) memory.seeds = tag_seeds_of(seed != 0 ? seed : detail::seed_by_clock());
    const unsigned slots_log2 = table_view::slots_log2_for(2 * batch.message_count);
    detail::fingerprint_table::clear(memory.slots, slots_log2, rank, size);
    detail::batch_tally tally{bring(memory, batch, rank, size), 0};
    group.sync();
    const detail::fingerprint_table table(memory.slots, memory.messages, slots_log2, memory.seeds);
    for (std::uint32_t i = rank; i < batch.message_count; i += size) table.put(i);
    group.sync();
    for (std::uint32_t i = rank; i < batch.message_count; i += size)
      if (!table.has_stayed(i) && !table.enter(i)) tally.bad = lesser(tally.bad, i);
    POLYPATH_MUTANT_OMITS(hash_mutant::no_barrier)
    group.sync();
    for (std::uint32_t i = rank; i < batch.receive_count; i += size) {
      const std::uint32_t message = table.find(memory.receives[i]);
      store(batch.matched_message + i, message);
      memory.receives[i] = message;
      if (message == kNone) continue;
      ++tally.pairs;
      memory.takers[message] = static_cast<std::uint16_t>(i);
      if (batch.matched_receive != nullptr) store(batch.matched_receive + message, i);
    }
    group.sync();
    for (std::uint32_t i = rank; i < batch.receive_count; i += size) {
      const auto message = static_cast<std::uint32_t>(memory.receives[i]);
      POLYPATH_MUTANT(hash_mutant::second_unnoticed, continue)
      if (message != kNone && memory.takers[message] != i)
        tally.bad = lesser(tally.bad, batch.message_count + i);
    }
    tally = detail::of_all(group, memory.sums, tally);
    if (tally.bad == kNone) return detail::outcome_of(batch, tally.pairs);
    detail::match_nothing(batch, rank, size);
    group.sync();
    return detail::refused_in<hashed_unique>(batch, tally.bad);
  }

 private:
  POLYPATH_DEVICE static std::uint32_t lesser(std::uint32_t first, std::uint32_t other) {
    return other < first ? other : first;
  }
  /// Envelopes, from memory of the GPU. Returns the first of this thread's that must not be
  /// matched: of the messages, else of the receives, which count after them.
  POLYPATH_DEVICE static std::uint32_t bring(storage& memory, const match_batch& batch,
                                             unsigned rank, unsigned size) {
    constexpr unsigned kAtOnce = 4;  // loads of a thread from each side
    const auto* const messages = reinterpret_cast<const std::uint64_t*>(batch.messages);
    const auto* const receives = reinterpret_cast<const std::uint64_t*>(batch.receives);
    std::uint32_t bad = kNone;
    const std::uint32_t most =
        batch.message_count > batch.receive_count ? batch.message_count : batch.receive_count;
    for (std::uint32_t first = rank; first < most; first += kAtOnce * size) {
      std::uint64_t message[kAtOnce];
      std::uint64_t receive[kAtOnce];
      POLYPATH_UNROLL
      for (unsigned k = 0; k < kAtOnce; ++k) {
        const std::uint32_t i = first + k * size;
        message[k] = i < batch.message_count ? load(messages + i) : 0;
        receive[k] = i < batch.receive_count ? load(receives + i) : 0;
      }
      POLYPATH_UNROLL
      for (unsigned k = 0; k < kAtOnce; ++k) {
        const std::uint32_t i = first + k * size;
        if (i < batch.message_count) memory.messages[i] = message[k];
        if (i < batch.receive_count) memory.receives[i] = receive[k];
        if (detail::status_of_message(envelope_of(message[k])) != match_status::done)
          bad = lesser(bad, i);
        if (detail::status_of_receive(hashed_unique{}, envelope_of(receive[k])) !=
            match_status::done)
          bad = lesser(bad, batch.message_count + i);
      }
    }
    if (batch.matched_receive != nullptr)
      for (std::uint32_t i = rank; i < batch.message_count; i += size)
        store(batch.matched_receive + i, kNone);
    return bad;
  }
};

}  // namespace polypath::device
