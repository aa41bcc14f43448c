// Streams of which the shim sees all that is put on them: copies that the engine issues there back
// to back are a sequence, whose staged routes need not wait for each other (exec/sequence.hpp).
//
// A stream is remembered when a transparent object has made it (below) and
// no default stream orders it. All later calls of the driver for it, but for event records,
// pass the shim, which notes them here.
#pragma once

#include <atomic>
#include <cstdint>

#include "cuda/intercepted.hpp"

namespace polypath::preload {

namespace detail {
struct TrackedStream;
extern std::atomic<int> remembered_streams;  ///< how many
TrackedStream* find_remembered(CUstream stream) noexcept;
void note(CUstream stream) noexcept;
}  // namespace detail

// Libraries whose calls of the driver all pass the shim, as far as they put work on a stream.
//
// An object is transparent when all of this holds of it, and of every object that needs it:
//   - it is not the program itself;
//   - of all names that begin with `cu` it refers to functions that put nothing on a stream but
//     event records, and to functions that the shim replaces; nor does it refer to libraries that
//     put work on streams of others (NCCL), or to lookups that the shim does not see (dlvsym);
//   - it has not looked up anything else by dlsym() or cuGetProcAddress().
// The object itself refers to the function by name that it makes a stream with: code that calls it
// by an address, as libffi does, calls it for another object.

/// Whether the object that holds `caller` is transparent, and refers to `maker`. Slow: some
/// microseconds to milliseconds.
bool is_transparent(const void* caller, const char* maker) noexcept;

/// Code at `caller` was, or may have been, given the address of a function of that name that the
/// shim does not replace. True when that is news, and its object is not transparent any more.
bool add_lookup(const char* name, const void* caller) noexcept;

/// Something other than the engine's copies and event records was put on the stream. To be called
/// after that: what another thread puts there meanwhile has no order with it anyway.
inline void note_other(CUstream stream) noexcept {
  if (detail::remembered_streams.load(std::memory_order_relaxed) != 0) detail::note(stream);
}

/// One copy that is offered to the engine.
class SequencedCopy {
 public:
  explicit SequencedCopy(CUstream stream) noexcept;

  /// Nothing but event records was put on the stream since the engine's last transfer there.
  [[nodiscard]] bool follows() const noexcept { return follows_; }
  /// The engine has issued it, without an error.
  void issued() noexcept;

 private:
  detail::TrackedStream* stream_ = nullptr;  ///< null: it is not remembered
  std::uint64_t others_ = 0;                 ///< noted on it before
  bool follows_ = false;
};

/// The object that holds `caller` was, or may have been, given the address of a driver function of
/// that name that the shim does not replace. Streams that it may be used on are forgotten.
void note_lookup(const char* name, const void* caller) noexcept;

/// After a reset of a GPU.
void forget_streams() noexcept;
void forget_streams_in_child() noexcept;

}  // namespace polypath::preload
