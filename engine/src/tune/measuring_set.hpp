// What measurements copy with: contexts, streams and buffers in all memories of a node, made when
// first asked for and kept from one measurement to the next; and what copies over several links
// carry together, which is the way to the capacity of a link (a group of one) and of a port (all
// the links that fill it).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "driver/cuda_driver.hpp"
#include "driver/resources.hpp"
#include "topology/node.hpp"
#include "tune/test_buffer.hpp"

namespace polypath {

/// Creates the primary context of every GPU (0.2 s each) and allows the peer access that the node's
/// links need; the contexts are released with this object, peer access lasts as long as they do.
/// Not thread-safe. Every member may throw DriverError.
class MeasurementContext {
 public:
  /// `bytes`: of the largest copy, of 1 MiB at least. `driver` and `node` must outlive it.
  MeasurementContext(const CudaDriver& driver, const Node& node, std::uint64_t bytes);

  [[nodiscard]] const CudaDriver& driver() const noexcept { return driver_; }
  [[nodiscard]] const Node& node() const noexcept { return node_; }
  [[nodiscard]] CUcontext context(int gpu) const;
  /// A stream of the GPU's primary context; the same for the same `number`.
  CUstream stream(int gpu, std::size_t number);
  /// Address of a buffer in `memory`; the same for the same `number`. Buffer n holds
  /// copy_bytes(n + 1) bytes: it serves groups of more than n copies.
  CUdeviceptr buffer(MemoryId memory, std::size_t number);
  /// Size of each copy, when `copies` run at once: groups of many copies use less for each.
  [[nodiscard]] std::uint64_t copy_bytes(std::size_t copies) const noexcept;

 private:
  void allow_peer_access();

  const CudaDriver& driver_;
  const Node& node_;
  std::uint64_t bytes_;
  std::vector<std::unique_ptr<PrimaryContext>> contexts_;
  std::map<int, std::vector<Stream>> streams_;
  std::map<MemoryId, std::vector<std::unique_ptr<TestBuffer>>> buffers_;
};

/// What copies over `links` (indices into Node::links, each at most once) carry together, GB/s: one
/// copy over each, all at once, as a user would issue it, a single cuMemcpyAsync in the context of
/// the source, or of the GPU when the source is host memory.
///
/// It is the slope between two sizes, so the time to start is not in it; the copies are issued
/// while a gate of small ones is under way, so the CPU's time is not in it either. A copy's part of
/// the group is in proportion to what it reached in a first run with equal parts: all finish
/// together, and the ports are busy to the end. Medians of `repetitions`.
///
/// Throws DriverError; Error when time did not grow with size.
double measure_together_gbps(MeasurementContext& set, std::span<const int> links, int repetitions);

}  // namespace polypath
