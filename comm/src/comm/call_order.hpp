// The order of calls that share memory of the GPU, as a communicator's collectives and a matcher's
// batches do: that of calls and of launches of graphs on the host, on any streams, as NCCL has it.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "driver/cuda_driver.hpp"
#include "driver/resources.hpp"

namespace polypath {

/// For one owner; one thread at a time.
///
/// An event stands for the latest call. A graph waits for it, and records it after its own calls,
/// at each launch.
class CallOrder {
 public:
  CallOrder(const CudaDriver& driver, CUcontext context);

  /// The number of the capture that the stream is in; 0: none.
  [[nodiscard]] std::uint64_t capture_of(CUstream stream) const;
  /// Before a call is issued on the stream, which is in this capture.
  void before(CUstream stream, std::uint64_t capture);
  /// After it.
  void behind(CUstream stream, std::uint64_t capture);
  /// Whether the latest call is under way. Any thread.
  [[nodiscard]] bool in_flight() const;
  /// Recorded after the latest call; null: there was none.
  [[nodiscard]] CUevent latest() const noexcept { return any_ ? last_.get() : nullptr; }

 private:
  /// The driver's number of a stream, which no other one ever has; 0: it gives none.
  [[nodiscard]] std::uint64_t id_of(CUstream stream) const;
  /// Drivers before CUDA 12.3 cannot be told of events in graphs: there programs order graphs and
  /// other calls.
  [[nodiscard]] bool orders_graphs(std::uint64_t capture) const noexcept;

  /// A capture that calls went into.
  struct Capture {
    std::uint64_t number = 0;  ///< 0: of none yet
    Event last;                ///< its latest call
    CUgraphNode record = nullptr;
    std::vector<CUgraphNode> ends{};  ///< what that call ends with
  };
  /// Null: no call went into it, or later calls went into more captures than are remembered.
  [[nodiscard]] Capture* find(std::uint64_t number);
  /// Room for another one.
  Capture& add_capture();
  /// The graph records the event after the call that was captured last, and after none before:
  /// one node, next to the way of the stream, that nothing waits for.
  void record_in_graph(Capture& capture, CUstream stream);

  const CudaDriver& driver_;
  CUcontext context_;
  Event last_;
  std::atomic<bool> any_{false};      // a call, or a graph, may have recorded it
  CUstream last_stream_ = nullptr;    // of the latest call outside of capture
  std::uint64_t last_stream_id_ = 0;  // as the driver numbers them; 0: it does not
  std::uint64_t stream_id_ = 0;       // of the call that is being ordered
  bool has_graphs_ = false;
  std::vector<Capture> captures_;  // the latest ones: the end of a capture is not reported
  std::size_t oldest_ = 0;         // of them
};

}  // namespace polypath
