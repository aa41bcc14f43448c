// The CUDA graph of a staged transfer, with its phases as calls of their own, so that each can be timed.
#pragma once

#include <vector>

#include "driver/cuda_driver.hpp"
#include "tune/staged_transfer.hpp"

namespace polypath {

/// Two memcpy nodes a chunk: leg 1 waits for its chunk's leg 0, and each leg for the chunk before it on
/// the same leg, which is the order that two streams would keep.
///
/// Phases in their order: the constructor, construct, instantiate, launch (again and again), patch and
/// launch, destroy. Not thread-safe. Every phase throws DriverError. The destructor waits for the last
/// launch and destroys what there still is; its failures are logged.
class StagedGraph {
 public:
  /// Creates an empty graph. Throws NotSupported for a driver without graphs. `driver` and `transfer`
  /// must outlive it.
  StagedGraph(const CudaDriver& driver, const StagedTransfer& transfer);
  ~StagedGraph();
  StagedGraph(const StagedGraph&) = delete;
  StagedGraph& operator=(const StagedGraph&) = delete;

  /// Adds all nodes.
  void construct(const StagedAddresses& at);
  void instantiate();
  /// Returns when it is issued on `stream`, whose context is current.
  void launch(CUstream stream);
  /// Gives every node of the instantiated graph other addresses, of memory in the same places.
  void patch(const StagedAddresses& at);
  /// Destroys the instantiated graph, whose launches have completed, and the graph; nothing may be
  /// called after it.
  void destroy();

 private:
  const CudaDriver& driver_;
  const StagedTransfer& transfer_;
  CUgraph graph_ = nullptr;
  CUgraphExec executable_ = nullptr;
  std::vector<CUgraphNode> nodes_;  ///< [2 chunk + leg]
  CUstream launched_on_ = nullptr;
};

}  // namespace polypath
