// A transfer whose chunks are all staged, by a graph whose phases are calls of their own, so that
// each can be timed, and by streams and events, which it is compared with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "driver/cuda_driver.hpp"
#include "driver/resources.hpp"
#include "exec/devices.hpp"
#include "plan/route.hpp"
#include "topology/node.hpp"

namespace polypath {

/// Where one run of the transfer reads, stages and writes; each of the transfer's size.
struct StagedAddresses {
  CUdeviceptr src = 0;
  CUdeviceptr staging = 0;
  CUdeviceptr dst = 0;
};

/// One copy of the transfer.
struct StagedCopy {
  CUdeviceptr dst = 0;
  CUdeviceptr src = 0;
  std::uint64_t bytes = 0;
  MemoryId to;
  MemoryId from;
  CUcontext context = nullptr;  ///< that issues it
};

/// `chunks` chunks of about one size, each carried from `src` to `via` (leg 0) and from there to
/// `dst` (leg 1). A GPU issues the copies that leave its memory; what leaves host memory is issued
/// by the GPU that it goes to.
class StagedTransfer {
 public:
  static constexpr std::uint64_t kMinChunk = 256;  ///< bytes; chunks begin at multiples of it

  /// Makes the contexts of the GPUs, and allows the peer access that the legs need. `route` is a
  /// staged route from `src` to `dst` of `node`. Throws InvalidArgument when a chunk would be
  /// smaller than kMinChunk, DriverError.
  StagedTransfer(const Node& node, Devices& devices, const Route& route, std::uint64_t bytes,
                 std::size_t chunks);

  [[nodiscard]] std::size_t chunks() const noexcept { return chunks_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] CUcontext context(int leg) const noexcept { return leg == 0 ? first_ : second_; }
  [[nodiscard]] StagedCopy copy(std::size_t chunk, int leg, const StagedAddresses& at) const;

 private:
  [[nodiscard]] std::uint64_t offset(std::size_t chunk) const noexcept;

  MemoryId src_;
  MemoryId via_;
  MemoryId dst_;
  std::uint64_t bytes_;
  std::size_t chunks_;
  CUcontext first_ = nullptr;
  CUcontext second_ = nullptr;
};

/// Two memcpy nodes a chunk: leg 1 waits for its chunk's leg 0, and each leg for the chunk before
/// it on the same leg, which is the order that two streams would keep.
///
/// Phases in their order: the constructor, construct, instantiate, launch (again and again), patch
/// and launch, destroy. Not thread-safe. Every phase throws DriverError. The destructor waits for
/// the last launch and destroys what there still is; its failures are logged.
class StagedGraph {
 public:
  /// Creates an empty graph. Throws NotSupported for a driver without graphs. `driver` and
  /// `transfer` must outlive it.
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

/// One stream a leg, one event a chunk from leg 0 to leg 1, and one from leg 1 back at the end, so
/// that all is ordered on the stream of leg 0 as a launched graph would be. Not thread-safe. Every
/// member may throw DriverError. The destructor waits for what was issued; its failures are logged.
class StagedStreams {
 public:
  /// `driver` and `transfer` must outlive it.
  StagedStreams(const CudaDriver& driver, const StagedTransfer& transfer);
  ~StagedStreams();
  StagedStreams(const StagedStreams&) = delete;
  StagedStreams& operator=(const StagedStreams&) = delete;

  /// The stream of leg 0, in its context.
  [[nodiscard]] CUstream stream() const noexcept { return first_.get(); }
  /// Issues all copies and returns. The thread's current context stays as it was.
  void issue(const StagedAddresses& at);

 private:
  const CudaDriver& driver_;
  const StagedTransfer& transfer_;
  Stream first_;
  Stream second_;
  std::vector<Event> staged_;  ///< by chunk: it is in the staging memory
  Event end_;
};

}  // namespace polypath
