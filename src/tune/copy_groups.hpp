// Measures groups of copies that run at once, one over each of some links of a node: the way to the
// capacity of a link (a group of one) and of a port (all the links that share it).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "driver/cuda_driver.hpp"
#include "topology/node.hpp"
#include "tune/buffers.hpp"
#include "tune/resources.hpp"

namespace polypath {

class GroupTimer;

/// The line T(bytes) = start_us + bytes / gbps through the times of a group, for two sizes.
struct GroupRate {
  double gbps = 0;      ///< of all copies together, without the time to start
  double start_us = 0;  ///< from the start event to the first byte, the CPU's call included
};

/// Buffers and streams for such measurements, kept from one to the next. Creates the primary context
/// of every GPU (0.2 s each) and allows the peer access that the node's links need; both stay as long
/// as this object, peer access as long as the contexts. `driver` and `node` must outlive it. Not
/// thread-safe.
class CopyGroups {
 public:
  /// `bytes`: of the largest copy, of 1 MiB at least; groups of many copies use less for each.
  CopyGroups(const CudaDriver& driver, const Node& node, std::uint64_t bytes);

  /// One copy over each of `links` (indices into Node::links, each at most once), all at once, as a
  /// user would issue it: a single cuMemcpyAsync in the context of the source, or of the GPU when the
  /// source is host memory. A copy's part of the group is in proportion to what it reached in a first
  /// run with equal parts, so that all finish together and the ports are busy to the end. Medians of
  /// `repetitions`. Throws DriverError; Error when the times make no sense (time did not grow with
  /// size).
  GroupRate measure(std::span<const int> links, int repetitions);

  /// A stream of the GPU's primary context; the same for the same `number`.
  const Stream& stream(int gpu, std::size_t number);
  /// A buffer in `memory`; the same for the same `number`. The buffers 0 hold the largest copy.
  const TestBuffer& buffer(MemoryId memory, std::size_t number);
  [[nodiscard]] CUcontext context(int gpu) const;

 private:
  struct Copy {
    CUdeviceptr dst;
    CUdeviceptr src;
    CUcontext context;
    CUstream stream;
  };

  [[nodiscard]] std::uint64_t copy_bytes(std::size_t copies) const noexcept;
  void allow_peer_access();
  std::vector<Copy> make_copies(std::span<const int> links);
  std::vector<double> balanced_parts(GroupTimer& timer, const std::vector<Copy>& copies,
                                     std::uint64_t bytes);
  void issue(const Copy& copy, std::uint64_t bytes);

  const CudaDriver& driver_;
  const Node& node_;
  std::uint64_t bytes_;
  std::vector<std::unique_ptr<PrimaryContext>> contexts_;
  std::map<int, std::vector<Stream>> streams_;
  std::map<MemoryId, std::vector<std::unique_ptr<TestBuffer>>> buffers_;
};

}  // namespace polypath
