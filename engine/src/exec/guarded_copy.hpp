// Copies of memory that a program owns, by threads that it knows nothing of. The memory may be
// unmapped, or its file truncated, while it is copied: such a fault must not end the process from
// a thread of ours (docs/adr/0036-pageable-memory.md).
#pragma once

#include <cstddef>

namespace polypath {

/// While one lives, SIGSEGV and SIGBUS of the process come to this file first. Signals that do not
/// belong to a copy of CopyScope go on to what the program has set, as if it alone were there. What
/// the program had set is put back by the last one, unless the program has set something else
/// meanwhile. Thread-safe.
class FaultGuard {
 public:
  FaultGuard() noexcept;
  ~FaultGuard();
  FaultGuard(const FaultGuard&) = delete;
  FaultGuard& operator=(const FaultGuard&) = delete;
};

/// Which stores a copy uses.
enum class Stores : unsigned char {
  cached,     ///< as memcpy: for what is read again soon, by a GPU or a CPU
  streaming,  ///< past the caches, where the CPU has such stores
};

/// Copies between ranges that do not overlap. False: a byte could not be read or written, and any
/// part of `to` may have been written. Only while a FaultGuard lives. Any thread.
bool copy_guarded(std::byte* to, const std::byte* from, std::size_t bytes, Stores stores) noexcept;

}  // namespace polypath
