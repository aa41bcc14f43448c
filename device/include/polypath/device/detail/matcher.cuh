// Matching of messages and receives by a warp, a block or the whole GPU.
//
//   using Matcher = matcher<mpi, 1024>;
//   extern __shared__ ... Matcher::storage& storage
//   match_outcome outcome = Matcher::match(this_block{}, storage, batch);
//
// matcher<Order, kCapacity> has, for every Order:
//   storage              plain memory of the group, in shared memory, that needs no preparation
//   match(group, storage, batch)
//       called by all threads of a warp or block with the same arguments; matches batch
//       (match_types.hpp) and returns the same to all. Memory of the batch is read plainly: what
//       others wrote there was made visible before. What it writes other threads of the group see
//       after the call, all others after a fence.
#pragma once

#include "polypath/device/detail/match_types.hpp"

namespace polypath::device {

/// At most `kCapacity` messages and as many receives in one batch: a power of two, 32 to 1024.
template <typename Order, unsigned kCapacity>
class matcher;

}  // namespace polypath::device
