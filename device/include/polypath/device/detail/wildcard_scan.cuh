// The phase of matching in MPI's order that goes through receives one by one: those with wildcards.
// What one of them sees of its list depends on others only where they took from a key of it. So
// several look at once, and what a look says is put right when one before took from the same key.
#pragma once

#include "polypath/device/detail/mpi_phases.cuh"
#include "polypath/device/detail/mutants.hpp"

namespace polypath::device {

template <typename Place>
POLYPATH_DEVICE void mpi_phases<Place>::choose_for_wildcards() const {
  constexpr unsigned kAhead = 4;  // receives whose messages are looked at together
  const std::uint32_t count = Place::get(t_.receive_counts + t_.slots());
  const std::uint32_t first = Place::get(t_.receive_begins + t_.slots());
  std::uint32_t matches = 0;
  for (std::uint32_t base = 0; base < count; base += kWarp) {
    // Each lane knows one receive of 32: its pattern's list, and how much of that is read.
    const bool is_one = base + lane_ < count;
    std::uint32_t my_receive = 0;
    std::uint32_t my_pattern = kNone;
    std::uint32_t my_list = 0;
    std::uint32_t my_end = 0;
    std::uint32_t my_read = 0;
    if (is_one) {
      my_receive = Place::get(t_.receives + first + base + lane_);
      my_pattern = Place::get(t_.receive_slots + my_receive);
      my_list = Place::get(t_.message_begins + my_pattern);
      my_end = Place::get(t_.message_counts + my_pattern);
      my_read = Place::get(t_.taken + my_pattern);
    }
    const unsigned of_these = count - base < kWarp ? count - base : kWarp;
    POLYPATH_NO_UNROLL
    for (unsigned begin = 0; begin < of_these; begin += kAhead) {
      std::uint32_t receive[kAhead];
      std::uint32_t at[kAhead];
      std::uint32_t left[kAhead];
      look looks[kAhead];
      POLYPATH_UNROLL
      for (unsigned a = 0; a < kAhead; ++a) {
        receive[a] = warp_shuffle(my_receive, begin + a);
        at[a] = warp_shuffle(my_list + my_read, begin + a);
        left[a] = warp_shuffle(my_end - my_read, begin + a);
        looks[a] = look_at(at[a], left[a]);
      }
      POLYPATH_UNROLL
      for (unsigned a = 0; a < kAhead; ++a) {
        look seen = looks[a];
        std::uint32_t passed = 0;
        unsigned free = warp_ballot(seen.limit > receive[a]);
        while (free == 0 && left[a] - passed > kWarp) {
          POLYPATH_MUTANT(match_mutant::first_of_a_look, break)
          passed += kWarp;
          seen = look_at(at[a] + passed, left[a] - passed);
          free = warp_ballot(seen.limit > receive[a]);
        }
        if (free != 0) {
          const unsigned winner = countr_one(~free);
          const std::uint32_t slot = warp_shuffle(seen.slot, winner);
          if (lane_ == winner) {
            Place::put(t_.taken + slot, seen.taken + 1);
            // The list of the key itself is not read any more: it gets the ranks that were taken.
            if (slot < t_.slots())
              Place::put(t_.messages + Place::get(t_.message_begins + slot) + seen.taken,
                         seen.rank);
            pair(seen.message, receive[a]);
          }
          POLYPATH_UNROLL
          for (unsigned b = a + 1; b < kAhead; ++b) {
            POLYPATH_MUTANT(match_mutant::looks_are_stale, break)
            if (looks[b].slot != slot) continue;
            ++looks[b].taken;
            looks[b].limit = limit_of(slot, looks[b].rank, looks[b].taken);
          }
          passed += winner + 1;
          ++matches;
          warp_sync();
        } else {
          passed = left[a];
        }
        const std::uint32_t pattern = warp_shuffle(my_pattern, begin + a);
        if (my_pattern == pattern) my_read = at[a] - my_list + passed;
      }
    }
    if (is_one) Place::put(t_.taken + my_pattern, my_read);
    warp_sync();
  }
  if (lane_ == 0 && matches != 0) Place::add(&t_.all->matches, matches);
}

}  // namespace polypath::device
