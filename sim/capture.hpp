// Stream capture: what streams in capture record instead of running. The result is a graph of nodes
// with their dependencies.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "cuda_api.hpp"
#include "graph.hpp"

namespace polypath::sim {

/// One capture, from cuStreamBeginCapture to cuStreamEndCapture.
struct Capture {
  Graph graph;
  std::uint64_t origin = 0;  ///< id of the stream that began it
  std::thread::id thread;    ///< that began it
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  bool is_valid = true;  ///< false once a call was made that a capture forbids
  bool ended = false;
};

/// The captures under way. Whether there are any may be asked without the driver's lock.
class Captures {
 public:
  void add(std::shared_ptr<Capture> capture) {
    all_.push_back(std::move(capture));
    count_.store(all_.size(), std::memory_order_release);
  }
  /// Does nothing when it is none of them.
  void remove(const std::shared_ptr<Capture>& capture) {
    std::erase(all_, capture);
    count_.store(all_.size(), std::memory_order_release);
  }
  [[nodiscard]] bool any() const noexcept { return count_.load(std::memory_order_acquire) > 0; }
  [[nodiscard]] auto begin() const noexcept { return all_.begin(); }
  [[nodiscard]] auto end() const noexcept { return all_.end(); }

 private:
  std::vector<std::shared_ptr<Capture>> all_;
  std::atomic<std::size_t> count_{0};
};

/// The place of a stream or an event in a capture.
struct CaptureMember {
  std::shared_ptr<Capture> capture;  ///< null, or ended: not in capture
  std::set<int> last;                ///< the nodes that the next one depends on

  [[nodiscard]] bool is_active() const noexcept { return capture && !capture->ended; }
  /// Adds a node that depends on `last`, and becomes it.
  void add_node();
  /// Makes what follows depend on the other's nodes as well, joining its capture.
  /// Failure STREAM_CAPTURE_MERGE when both are in different captures.
  void join(const CaptureMember& other);
  /// True when every node of the capture comes before `last`, or is in it.
  [[nodiscard]] bool covers_all() const;
};

/// How far captures restrict the calling thread (cuThreadExchangeStreamCaptureMode).
CUstreamCaptureMode& thread_capture_mode() noexcept;

/// True when the capture forbids calls to the calling thread that might disturb it.
bool forbids_unsafe_calls(const Capture& capture) noexcept;

}  // namespace polypath::sim
