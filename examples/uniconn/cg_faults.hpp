// Defects of cg.cuh (polypath/device/detail/mutants.hpp): uniconn/tests/test_cg_host.cpp finds each.
#pragma once

#include "polypath/device/detail/mutants.hpp"

namespace uniconn_example {

enum class CgFault {
  none,
  ends_without_order,  ///< nothing orders what blocks have stored before their end
  first_for_last,      ///< the first block that comes goes on for all
  count_not_reset,     ///< the next launch counts on from there
  other_halves,        ///< lanes' sums are of each other's rows
  second_round_twice,  ///< of a row's entries
  sent_before_stored,  ///< what is sent is the direction before this one
  sent_to_one,         ///< of the other ranks
  no_last_barrier,     ///< a rank goes on before it has the direction of all
  own_sum              ///< not of all ranks
};

}  // namespace uniconn_example
