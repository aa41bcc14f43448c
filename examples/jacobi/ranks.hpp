// The exchange of halo rows between neighbours.
#pragma once

#include "field.hpp"

namespace jacobi {

/// Gives the neighbours of this rank the outer rows of `field.next()`, and its halo theirs: first all send
/// to the rank before them, then all to the rank after them, so that at any time the messages go one
/// way around the ring. Collective.
void exchange_halo(Field& field, int rank, int ranks);

}  // namespace jacobi
