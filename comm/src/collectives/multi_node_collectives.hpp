// Collectives across nodes: chunk by chunk, in three stages that overlap with those of other
// chunks.
//
//   first     inside each node   reduce-scatter of a chunk: slice l to the rank with number l there
//   between   equal ranks        slices become one, by an existing engine
//   (comm/network_transport.hpp) last      inside each node   all-gather of the chunk
//
// so it is for allreduce; other operations leave out or exchange stages. First and last stages are
// collectives of the node's communicator, on one stream; each of the chunks under way has another
// stream for what is between. Between n nodes a rank sends 2 (n - 1) / n of its slice for an
// allreduce: each node sums 1 / n of it, and sends the result.
//
// Order of summation: the ranks of a node in their order, then the nodes in theirs. As a tree: the
// same, as trees; which is the tree over all ranks where each node has a subtree of it.
#pragma once

#include <vector>

#include "collectives/collectives.hpp"
#include "collectives/plan/node_pipeline.hpp"
#include "comm/node_network.hpp"

namespace polypath {

/// How calls went, since the beginning.
struct NodeCounts {
  std::uint64_t calls = 0;
  std::uint64_t chunks = 0;
};

/// One a rank; calls as Collectives'.
class MultiNodeCollectives {
 public:
  /// Takes memory of this rank's GPU. Both must outlive it. Throws DriverError. `most_slice`: bytes
  /// of a rank's slice of a chunk, at most; the same on all ranks, a multiple of 4096.
  MultiNodeCollectives(Collectives& inside, NodeNetwork& links,
                       std::uint64_t max_slice = kMaxNodeSlice);
  /// Work that uses it must have completed.
  ~MultiNodeCollectives();
  MultiNodeCollectives(const MultiNodeCollectives&) = delete;
  MultiNodeCollectives& operator=(const MultiNodeCollectives&) = delete;

  /// As Collectives::run, with roots and parts as of all ranks of all nodes; but not in capture.
  /// What one rank alone cannot do aborts the communicator, as there.
  void run(const CollectiveCall& call, CUstream stream);
  /// The same for rows that are normalised: an allreduce across nodes, and a kernel.
  void run(const NormCall& call, CUstream stream);

  [[nodiscard]] const NodeCounts& counts() const noexcept { return counts_; }
  [[nodiscard]] std::uint64_t scratch_bytes() const noexcept;

 private:
  /// A chunk under way.
  struct Slot {
    Stream stream;  ///< of what is between nodes
    Event ready;    ///< the first stage is done
    Event done;     ///< what is between is done
    CUdeviceptr part = 0;
    CUdeviceptr received = 0;
    CUdeviceptr sum = 0;  ///< partial, where one kernel cannot take all nodes
  };
  struct Chunk {
    std::uint64_t begin = 0;  ///< elements: of the message, or of each part
    std::uint64_t count = 0;
    std::uint64_t slice = 0;  ///< of a message: elements of each rank of a node
    Slot* slot = nullptr;
  };
  enum class Stage : std::uint8_t { first, between, last };

  /// Throws NotSupported, on all ranks alike, for sums as a tree that would be none.
  void require_order(const CollectiveCall& call) const;
  /// What must be alike on all ranks, for CollectiveCall::within.
  [[nodiscard]] std::uint32_t hash_of(const CollectiveCall& call) const;
  void issue(const CollectiveCall& call, CUstream stream);
  void issue(const CollectiveCall& call, const Chunk& chunk, Stage stage);
  // An operation's part in a stage of a chunk.
  void allreduce(const CollectiveCall& call, const Chunk& chunk, Stage stage);
  void reduce(const CollectiveCall& call, const Chunk& chunk, Stage stage);
  void broadcast(const CollectiveCall& call, const Chunk& chunk, Stage stage);
  void reduce_scatter(const CollectiveCall& call, const Chunk& chunk, Stage stage);
  void all_gather(const CollectiveCall& call, const Chunk& chunk, Stage stage);
  void all_to_all(const CollectiveCall& call, const Chunk& chunk, Stage stage);

  /// Elements of a chunk at most, the same on all ranks.
  [[nodiscard]] std::uint64_t chunk_elements(const CollectiveCall& call) const;
  void reduce_inside(const CollectiveCall& call, const Chunk& chunk);
  void gather_inside(const CollectiveCall& call, const Chunk& chunk, CUdeviceptr to);
  void run_inside(const CollectiveCall& call);
  /// With the other nodes, on the slot's stream.
  void exchange(const std::vector<NetworkMessage>& sends,
                const std::vector<NetworkMessage>& receives, const Slot& slot);
  /// operands[i] of node i, combined.
  void sum(const CollectiveCall& call, const std::vector<CUdeviceptr>& operands, CUdeviceptr to,
           std::uint64_t count, const Slot& slot);
  void copy(CUdeviceptr to, CUdeviceptr from, std::uint64_t bytes, CUstream stream);
  CUdeviceptr take(std::uint64_t bytes);

  Collectives& inside_;
  NodeNetwork& links_;
  const NodeMap& map_;
  Communicator& comm_;
  std::uint64_t max_slice_;
  std::vector<CUdeviceptr> memory_;
  std::uint64_t taken_ = 0;
  Stream stream_;  // of what is inside
  Event fork_;
  Event end_;
  CUdeviceptr staged_ = 0;
  std::vector<Slot> slots_;
  NodeCounts counts_;
  std::uint32_t skipped_ = 0;  // calls of which nothing was issued
  std::uint32_t waits_ = 0;    // their number in WaitRegistry
  ExchangeMark mark_;          // of the call that is being issued
};

}  // namespace polypath
