// Stream captures under way, and the graphs that they build.
//
// Captures owns the list of captures; their graphs lie in Graphs. What a stream or an event has to
// do with one is in its CaptureMember (objects.hpp). The driver's lock guards all of it; any()
// needs none.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "cuda_api.hpp"
#include "graphs.hpp"
#include "objects.hpp"

namespace polypath::sim {

/// How far captures restrict the calling thread (cuThreadExchangeStreamCaptureMode).
CUstreamCaptureMode& thread_capture_mode() noexcept;

class Captures {
 public:
  /// `graphs` must outlive this.
  explicit Captures(Graphs& graphs) : graphs_(graphs) {}

  /// Failure STREAM_CAPTURE_UNSUPPORTED for a legacy stream, ILLEGAL_STATE when it is in capture.
  void begin(Stream& stream, CUstreamCaptureMode mode);
  /// Ends the capture that the stream began, and returns its graph, which is the caller's.
  /// Failures: as of cuStreamEndCapture. Of an invalid or unjoined capture the graph is destroyed.
  CUgraph end(Stream& stream);
  /// Ends the stream's capture, if it is in one, and destroys the graph.
  void abandon(const Stream& stream);

  /// Adds a node that depends on the member's `last`, and becomes it.
  void add_node(CaptureMember& member, GraphWork work);
  /// To be called first by calls that might disturb a capture: allocations, waits and queries. A
  /// capture that forbids them is invalidated: Failure STREAM_CAPTURE_UNSUPPORTED.
  void require_unsafe_calls_allowed();

  /// Whether there are any. Lock-free.
  [[nodiscard]] bool any() const noexcept { return count_.load(std::memory_order_acquire) > 0; }
  [[nodiscard]] std::size_t size() const noexcept { return captures_.size(); }
  /// True for the graph of a capture under way.
  [[nodiscard]] bool owns(CUgraph graph) const noexcept;

 private:
  /// True when every captured node of the capture comes before the member's `last`, or is in it.
  [[nodiscard]] bool covers_all(const CaptureMember& member) const;
  /// Does nothing when it is none of them.
  void remove(const std::shared_ptr<Capture>& capture);

  Graphs& graphs_;
  std::vector<std::shared_ptr<Capture>> captures_;
  std::uint64_t begun_ = 0;
  std::atomic<std::size_t> count_{0};
};

}  // namespace polypath::sim
