// Peer access as the program has it: the engine enables it too, in the same contexts, and what the
// program enables, or disables, must be answered as if it had not. Any thread.
#pragma once

#include "cuda/intercepted.hpp"

namespace polypath::preload {

/// Its primary context is going to be reset.
void forget_peer_access_of(CUdevice gpu) noexcept;

/// In the child of a fork.
void forget_peer_access() noexcept;

}  // namespace polypath::preload
