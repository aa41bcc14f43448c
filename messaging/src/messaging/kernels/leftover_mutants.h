// What can be wrong with carrying over, for the tests that find it.
#pragma once

#include "polypath/device/detail/mutants.hpp"

namespace polypath {

/// Defects of carrying over (mutants.hpp).
enum class leftover_mutant {
  none,
  no_barrier_of_counts,   ///< places are given before all warps have counted
  full_is_not_looked_at,  ///< what is too many is written after the end
  refused_is_kept         ///< what is new of a refused batch stays
};

}  // namespace polypath
