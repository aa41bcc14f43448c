// Defects of what kernels call (device/detail/mutants.hpp): polypath's own tests find each.
#pragma once

#include "polypath/device/detail/mutants.hpp"

namespace polypath::uniconn::detail {

enum class device_mutant {
  none,
  // of collectives, for any backend
  no_first_barrier,  ///< what is sent comes while its receiver still uses the memory
  no_last_barrier,   ///< ranks go on before all has come
  wrong_slot,        ///< a rank's part goes to the place of the next rank's
  // of the polypath backend; those of barriers and sums are polypath/device's (rank_barrier.cuh)
  data_before_the_group,      ///< sent before all of the group have stored what is sent
  signal_before_data,         ///< the signal is set before the data is stored
  signal_before_the_group,    ///< ... or when the leader's own part of it is
  signal_without_release,     ///< nothing orders it after the data
  group_ahead_of_its_leader,  ///< only the leader waits for what is acknowledged
  wrong_rank,                 ///< data goes to the next rank
  wait_without_fence
};

}  // namespace polypath::uniconn::detail
