// Pinned host memory that all ranks of a communicator share: parts, each near to one host memory
// of the node, in one memory file that no folder holds. Each process maps it once and registers it
// with the driver, so copies and kernels of all its ranks may address it.
//
//   rank 0 makes the file, and touches each part's pages from its NUMA domain
//   the first rank of each process maps it; of each part a rank near to it registers it there
//   the last rank of a process that releases it frees it
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/control_segment.hpp"
#include "comm/rank_table.hpp"
#include "driver/resources.hpp"
#include "topology/node.hpp"

namespace polypath {

/// One a process: its ranks share it. Thread-safe once it is made.
class SharedHostMemory {
 public:
  struct Place {
    std::shared_ptr<const CudaDriver> driver;
    const Node& node;
    std::shared_ptr<ControlSegment> board;
    Members members;
    std::shared_ptr<const PrimaryContext> context;  ///< of this rank's GPU
    std::chrono::milliseconds limit;                ///< how long others are waited for
    std::uint64_t number;                           ///< of the call, the same on all ranks
    std::vector<int> hosts;  ///< of each part the host memory, an index into Node::hosts
    Call::Kind call = Call::Kind::alloc_host;  ///< what the ranks compare
  };

  /// Collective; zeroed, `bytes` in each part. Throws CommunicatorError, the same on all
  /// ranks; when only memory was short on one of them, the communicator stays usable.
  static std::shared_ptr<const SharedHostMemory> make(const Place& place, std::uint64_t bytes);
  /// Work that uses it must have completed.
  ~SharedHostMemory();
  SharedHostMemory(const SharedHostMemory&) = delete;
  SharedHostMemory& operator=(const SharedHostMemory&) = delete;

  /// The size of each part.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  /// A part, by its place in `Place::hosts`: for host, copies and kernels.
  [[nodiscard]] CUdeviceptr address(int part) const {
    return parts_.at(static_cast<std::size_t>(part)).address;
  }

 private:
  struct Part {
    CUdeviceptr address = 0;
    std::shared_ptr<const PrimaryContext> context;  // in which it is registered
  };
  struct Key;
  struct Known;
  class File;

  SharedHostMemory(std::shared_ptr<const CudaDriver> driver, const File& file, std::size_t parts,
                   std::uint64_t bytes);
  static Known& known();
  /// That of this process; null: there is none.
  static std::shared_ptr<SharedHostMemory> find(const Key& key);
  /// The parts that `place`'s rank must register.
  void register_parts(const Place& place);

  std::shared_ptr<const CudaDriver> driver_;
  std::uint64_t bytes_;
  std::uint64_t part_bytes_;
  void* memory_ = nullptr;
  std::vector<Part> parts_;
};

}  // namespace polypath
