// The order of a communicator's calls: two at once would share their counters, and ranks have to
// run them in one order. It is that of calls and of launches of graphs on the host, whatever their
// streams are, as NCCL has it.
#pragma once

#include <cstdint>
#include <vector>

#include "driver/cuda_driver.hpp"
#include "tune/resources.hpp"

namespace polypath {

/// Of one communicator; one thread at a time.
///
/// An event stands for the latest call. A graph waits for it, and records it behind its own calls,
/// at each launch.
class CallOrder {
 public:
  CallOrder(const CudaDriver& driver, CUcontext context);

  /// The number of the capture that the stream is in; 0: none.
  [[nodiscard]] std::uint64_t capture_of(CUstream stream) const;
  /// Before a call is issued on the stream, which is in this capture.
  void before(CUstream stream, std::uint64_t capture);
  /// Behind it.
  void behind(CUstream stream, std::uint64_t capture);
  /// Whether the latest call is under way.
  [[nodiscard]] bool in_flight() const;

 private:
  /// The driver's number of a stream, which no other one ever has; 0: it gives none.
  [[nodiscard]] std::uint64_t id_of(CUstream stream) const;
  /// Drivers before CUDA 12.3 cannot be told of events in graphs: there programs order graphs and
  /// other calls.
  [[nodiscard]] bool orders_graphs(std::uint64_t capture) const noexcept;
  /// The graph records the event behind the call that was captured last, and behind none before:
  /// one node, beside the way of the stream, that nothing waits for.
  void record_in_graph(CUstream stream, bool is_first);

  const CudaDriver& driver_;
  Event last_;
  bool any_ = false;                  // a call, or a graph, may have recorded it
  CUstream last_stream_ = nullptr;    // of the latest call outside of capture
  std::uint64_t last_stream_id_ = 0;  // as the driver numbers them; 0: it does not
  std::uint64_t stream_id_ = 0;       // of the call between `before` and `behind`
  bool has_graphs_ = false;

  Event last_captured_;
  std::uint64_t capture_ = 0;  // in which that was
  CUgraphNode record_ = nullptr;
  std::vector<CUgraphNode> captured_;  // what that call ends with
};

}  // namespace polypath
