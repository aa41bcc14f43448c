// The phase of matching in MPI's order that does all that is left where no receive has a wildcard
// and no key very many: keys do not depend on each other, and the n-th receive of one takes its
// n-th message. A thread that puts both in order, in registers, has the pairs.
#pragma once

#include "polypath/device/detail/mpi_phases.cuh"
#include "polypath/device/detail/mutants.hpp"
#include "polypath/device/detail/sort.cuh"

namespace polypath::device {

namespace detail {

/// Numbers of one thread.
POLYPATH_DEVICE void sort_few(std::uint32_t (&numbers)[kFewOfGroup]) {
  static_assert(kFewOfGroup == 4, "the network is of four");
  const auto order = [&](unsigned first, unsigned other) {
    const std::uint32_t a = numbers[first];
    const std::uint32_t b = numbers[other];
    numbers[first] = a < b ? a : b;
    numbers[other] = a < b ? b : a;
  };
  order(0, 2);
  order(1, 3);
  order(0, 1);
  order(2, 3);
  order(1, 2);
}

}  // namespace detail

template <typename Place>
template <unsigned kEach>
POLYPATH_DEVICE std::uint32_t mpi_phases<Place>::pair_each(
    const std::uint32_t (&both)[2][kEach]) const {
  std::uint32_t pairs = 0;
  POLYPATH_UNROLL
  for (unsigned i = 0; i < kEach; ++i) {
    if (both[0][i] == kNone || both[1][i] == kNone) continue;
    pair(both[1][i], both[0][i]);
    ++pairs;
  }
  return pairs;
}

template <typename Place>
template <unsigned kEach>
POLYPATH_DEVICE std::uint32_t mpi_phases<Place>::pair_group(const group& members) const {
  std::uint32_t both[2][kEach];
  POLYPATH_UNROLL
  for (unsigned i = 0; i < kEach; ++i) {
    const std::uint32_t at = i * kWarp + lane_;
    both[0][i] = at < members.receive_count ? Place::get(members.receives + at) : kNone;
    both[1][i] = at < members.message_count ? Place::get(members.messages + at) : kNone;
  }
  POLYPATH_MUTANT(match_mutant::any_order_of_long_groups, return pair_each(both))
  detail::sort_in_warp(both);
  return pair_each(both);
}

template <typename Place>
POLYPATH_DEVICE std::uint32_t mpi_phases<Place>::pair_few(const group& members) const {
  std::uint32_t both[2][detail::kFewOfGroup];
  POLYPATH_UNROLL
  for (unsigned i = 0; i < detail::kFewOfGroup; ++i) {
    both[0][i] = i < members.receive_count ? Place::get(members.receives + i) : kNone;
    both[1][i] = i < members.message_count ? Place::get(members.messages + i) : kNone;
  }
  POLYPATH_MUTANT_OMITS(match_mutant::any_order_of_receives)
  detail::sort_few(both[0]);
  POLYPATH_MUTANT_OMITS(match_mutant::any_order_of_messages)
  detail::sort_few(both[1]);
  return pair_each(both);
}

template <typename Place>
POLYPATH_DEVICE void mpi_phases<Place>::pair_groups() const {
  constexpr unsigned kUsual = 2;  // of each lane
  const auto max_of = [](const group& members) {
    return members.receive_count < members.message_count ? members.message_count
                                                         : members.receive_count;
  };
  std::uint32_t matches = 0;
  // A warp each; the first ones go to as many blocks.
  const auto noted = static_cast<std::uint32_t>(Place::get(&t_.all->groups));
  for (std::uint32_t at = warp_index() * grid_size() + block_index(); at < noted;
       at += size_ / kWarp) {
    const group members = group_of(Place::get(t_.noted + at));
    matches += max_of(members) <= kUsual * kWarp
                   ? pair_group<kUsual>(members)
                   : pair_group<detail::kMaxPerGroup / kWarp>(members);
  }
  for (std::uint32_t slot = rank_; slot < t_.slots(); slot += size_) {
    const group members = group_of(slot);
    if (members.receive_count != 0 && members.message_count != 0 &&
        max_of(members) <= detail::kFewOfGroup)
      matches += pair_few(members);
  }
  note_matches(matches);
}

}  // namespace polypath::device
