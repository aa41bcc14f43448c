// What the lane kernel and its launcher agree on. Read by the CUDA compiler too: plain declarations
// only.
#pragma once

namespace polypath {

/// One lane of a directed link: the queue of the thread blocks that want to copy over it. A ticket
/// lock, in device memory of the link's source GPU, all zero at first; each on a cache line of its
/// own.
struct alignas(128) TicketLock {
  unsigned int next;     ///< the ticket that the next block draws
  unsigned int serving;  ///< the ticket whose block copies now
};

/// Threads of a block; the kernel runs with exactly this number.
inline constexpr unsigned int kLaneThreads = 1024;
/// Parts of a copy start at multiples of it, counted from the start of the copy.
inline constexpr unsigned long long kLaneGranule = 1024;

}  // namespace polypath
