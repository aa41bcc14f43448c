// Streams: their life, what they take, and the order of their work.
//
// Streams owns those that programs make; the default streams of a context lie in the context. The
// driver's lock guards all of it. What waits may give the lock back meanwhile: what was looked up
// has to be looked up again.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "captures.hpp"
#include "contexts.hpp"
#include "cuda_api.hpp"
#include "devices.hpp"
#include "handle_table.hpp"
#include "objects.hpp"

namespace polypath::sim {

inline constexpr int kMinStreamPriority = 0;

/// Operations that a stream takes after the one it is at; measured with copies on an H200.
inline constexpr int kStreamDepth = 1021;

class Streams {
 public:
  /// The others must outlive this. `timeout`: the process ends when a full stream has not moved for
  /// this time.
  Streams(Contexts& contexts, Captures& captures, Devices& devices, std::chrono::seconds timeout)
      : contexts_(contexts), captures_(captures), devices_(devices), timeout_(timeout) {}

  CUstream create(Context& context, unsigned flags, int priority);
  /// Makes the context's legacy default stream.
  void init_legacy(Context& context);
  /// Work already issued goes on. Failure INVALID_HANDLE for a default stream.
  void destroy(CUstream handle);
  /// Ends the captures of the context's streams, and destroys those that programs made.
  void destroy_all(const Context& context);
  [[nodiscard]] std::size_t live() const noexcept { return table_.live(); }

  /// The stream after a handle, NULL and the special handles included. Failure INVALID_HANDLE when
  /// there is none.
  Stream& get(CUstream handle);
  /// Blocks until the stream can take `count` more operations, as many as it ever takes for a
  /// larger one. To be called before anything is looked up: others' calls go on meanwhile. Does not
  /// block for a stream that captures, nor for a handle that is none. `count` operations may then
  /// be enqueued.
  void wait_for_room(CUstream handle, std::size_t count = 1);
  /// Runs it after all that the stream's order demands. Failure STREAM_CAPTURE_IMPLICIT when the
  /// stream is the legacy one and another one, ordered with it, is in capture: that is invalidated.
  OperationPtr enqueue(Stream& stream, Operation operation);
  /// Blocks until the work of the context has ended. Failure INVALID_CONTEXT when it is none.
  void synchronize(CUcontext context);
  /// True when a stream that is ordered with the legacy stream of the context is in capture.
  [[nodiscard]] bool has_implicit_capture(const Context& context) const;

 private:
  /// Calls `visit(stream)` for all streams of the context but the legacy one.
  template <typename Visit>
  void for_each(const Context& context, const Visit& visit) const;
  /// The last operations of all streams of the context.
  [[nodiscard]] std::vector<OperationPtr> tails(const Context& context) const;
  [[nodiscard]] std::vector<Capture*> implicit_captures(const Context& context) const;

  Contexts& contexts_;
  Captures& captures_;
  Devices& devices_;
  const std::chrono::seconds timeout_;
  HandleTable<CUstream, Stream, 0x5150> table_;
  std::uint64_t last_id_ = 0;
};

}  // namespace polypath::sim
