// One instantiated CUDA graph of copies: a node for each step of a transfer's schedule, made by the
// explicit API. It can be launched over and over, and given other addresses between two launches.
#pragma once

#include <span>
#include <vector>

#include "exec/memcpy_node.hpp"
#include "plan/transfer_schedule.hpp"

namespace polypath {

/// Where one step reads and writes, and the GPU and context that carry it.
struct NodePlace {
  CUdeviceptr dst = 0;
  CUdeviceptr src = 0;
  int gpu = 0;
  CUcontext context = nullptr;

  friend bool operator==(const NodePlace&, const NodePlace&) = default;
};

/// Not thread-safe. All but the destructor throw DriverError.
class CopyGraph {
 public:
  /// Builds and instantiates. `places`: one a step. The first two must outlive it.
  CopyGraph(const CudaDriver& driver, const TransferSchedule& schedule,
            std::span<const NodePlace> places);
  ~CopyGraph();
  CopyGraph(const CopyGraph&) = delete;
  CopyGraph& operator=(const CopyGraph&) = delete;

  [[nodiscard]] const std::vector<NodePlace>& places() const noexcept { return places_; }

  /// Later launches go by `places`, which differ from those of the construction in addresses only.
  /// Sets the nodes that change, or with `all` every node; returns how many. After a failure the
  /// nodes hold a mixture: it must not be launched any more.
  std::size_t patch(std::span<const NodePlace> places, bool all);

  /// The graph's CPU time is the caller's; its copies are ordered on `stream`, in whose context the
  /// calling thread is.
  void launch(CUstream stream);

  /// The contexts that its copies run in are gone: the handles are forgotten, not destroyed.
  void abandon() noexcept;

 private:
  [[nodiscard]] CUDA_MEMCPY3D parameters(std::size_t index, const NodePlace& place) const;
  void build();
  /// `last`: of its queue so far; becomes the new node.
  void add(std::size_t index, CUgraphNode& last);
  void set(std::size_t index, const NodePlace& place);
  void destroy() noexcept;

  const CudaDriver& driver_;
  const TransferSchedule& schedule_;
  std::vector<NodePlace> places_;
  std::vector<CUgraphNode> nodes_;
  CUgraph graph_ = nullptr;
  CUgraphExec executable_ = nullptr;
};

}  // namespace polypath
