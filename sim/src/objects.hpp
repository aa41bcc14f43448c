// The objects of opaque handles that refer to each other: contexts, streams, events, captures.
// Plain data under the driver's lock; the parts that own them are in contexts.hpp, streams.hpp,
// events.hpp and captures.hpp.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "cuda_api.hpp"
#include "failure.hpp"
#include "operation.hpp"

namespace polypath::sim {

// Stream capture: what streams in capture record instead of running. The result is a graph of nodes
// with their dependencies.

/// One capture, from cuStreamBeginCapture to cuStreamEndCapture.
struct Capture {
  CUgraph graph = nullptr;
  std::uint64_t origin = 0;  ///< id of the stream that began it
  std::thread::id thread;    ///< that began it
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  bool is_valid = true;  ///< false once a call was made that a capture forbids
  bool ended = false;
  std::uint64_t number = 0;  ///< of no other capture of the process
};

/// The place of a stream or an event in a capture.
struct CaptureMember {
  std::shared_ptr<Capture> capture;   ///< null, or ended: not in capture
  std::set<int> last;                 ///< the nodes that the next one depends on
  std::vector<CUgraphNode> reported;  ///< `last`, as returned to the program

  [[nodiscard]] bool is_active() const noexcept { return capture && !capture->ended; }
  /// Makes what follows depend on the other's nodes as well, joining its capture.
  /// Failure STREAM_CAPTURE_MERGE when both are in different captures.
  void join(const CaptureMember& other);
};

struct Stream {
  CUcontext context = nullptr;
  int device = 0;
  std::uint64_t id = 0;  ///< never given out twice
  unsigned flags = 0;    ///< of cuStreamCreate
  int priority = 0;
  bool is_legacy = false;  ///< the context's default stream
  OperationPtr tail;       ///< last operation issued; null: none yet
  /// The number of its operations that have not completed.
  std::shared_ptr<int> queued = std::make_shared<int>(0);
  CaptureMember capture;

  /// Ordered with the legacy default stream of its context.
  [[nodiscard]] bool is_blocking() const noexcept { return (flags & CU_STREAM_NON_BLOCKING) == 0; }
  /// Failure STREAM_CAPTURE_UNSUPPORTED when it is in capture.
  void require_no_capture() const {
    require(!capture.is_active(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  }
};

struct Event {
  CUcontext context = nullptr;
  unsigned flags = 0;
  OperationPtr record;          ///< the most recent record; null: never recorded
  std::uint64_t serial = 0;     ///< of that record
  std::uint64_t stream_id = 0;  ///< that it was recorded on
  CaptureMember capture;        ///< set when it was last recorded in a capture

  [[nodiscard]] bool has_timing() const noexcept { return (flags & CU_EVENT_DISABLE_TIMING) == 0; }
};

struct Context {
  CUcontext handle = nullptr;
  int device = 0;
  std::uint64_t id = 0;  ///< never given out twice
  unsigned flags = 0;
  bool is_primary = false;
  std::shared_ptr<void> room;   ///< what it takes of its GPU's memory
  std::shared_ptr<void> claim;  ///< to the GPU, where one process excludes the others
  std::set<CUcontext> peers;    ///< contexts whose device memory work of this one may reach
  Stream legacy;
  std::map<std::thread::id, std::unique_ptr<Stream>> per_thread;
  std::set<CUstream> streams;
  std::set<CUevent> events;
  std::set<CUmodule> modules;
  CUresult fault = CUDA_SUCCESS;  ///< of a kernel: all that comes later fails with it
  /// Work that no stream of it shows: the last operations of streams destroyed with work under way,
  /// and nodes of graphs that were launched on another context's stream.
  std::vector<OperationPtr> orphans;

  /// Throws the failure of its kernel, if one has failed.
  void require_no_fault() const { require(fault == CUDA_SUCCESS, fault); }
  void add_orphan(OperationPtr operation) {
    std::erase_if(orphans, [](const OperationPtr& other) { return other->done; });
    orphans.push_back(std::move(operation));
  }
};

}  // namespace polypath::sim
