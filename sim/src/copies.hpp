// Copies and fills: what they move, what they take of the node, and their issue.
//
// Copies owns nothing. All functions are called under the driver's lock. Those that issue may give
// it back meanwhile: what was looked up has to be looked up again. Where no stream, context or
// memory is there, they throw what Streams, Contexts and find_operand() throw.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "captures.hpp"
#include "contexts.hpp"
#include "counters.hpp"
#include "cuda_api.hpp"
#include "devices.hpp"
#include "graphs.hpp"
#include "memory.hpp"
#include "operation.hpp"
#include "pools.hpp"
#include "routing.hpp"
#include "streams.hpp"
#include "topology/node.hpp"

namespace polypath::sim {

/// What a copy moves: rows of bytes, in layers. Most copies are one row.
struct CopyRequest {
  struct Side {
    std::uintptr_t address = 0;
    std::size_t row_pitch = 0;    ///< from one row to the next
    std::size_t layer_pitch = 0;  ///< from one layer to the next
    /// For cuMemcpyPeer: the context that owns the memory. If the issuing context has no access to
    /// it, the copy goes through host memory.
    CUcontext context = nullptr;
  };
  Side dst;
  Side src;
  std::size_t bytes = 0;  ///< of a row
  std::size_t rows = 1;
  std::size_t layers = 1;

  [[nodiscard]] std::size_t total() const noexcept { return bytes * rows * layers; }
  /// From the first byte of a side to its last.
  [[nodiscard]] std::size_t extent(const Side& side) const noexcept {
    return (layers - 1) * side.layer_pitch + (rows - 1) * side.row_pitch + bytes;
  }
};

/// A copy that only has to be issued.
struct PreparedCopy {
  Operation operation;
  bool is_bounced = false;
  bool is_pageable = false;
  bool is_upload = false;  ///< from pageable memory to a GPU: ends after the call
  bool has_host_side = false;
  bool is_waited_for = false;  ///< by synchronous calls, although no side is host memory
};

class Copies {
 public:
  /// The others must outlive this, and what it issues.
  Copies(const Node& node, const Routing& routing, const Memory& memory, const Pools& pools,
         Contexts& contexts, Streams& streams, Captures& captures, Devices& devices,
         Counters& counters)
      : node_(node),
        routing_(routing),
        memory_(memory),
        pools_(pools),
        contexts_(contexts),
        streams_(streams),
        captures_(captures),
        devices_(devices),
        counters_(counters) {}

  /// cuMemcpyAsync on `stream`; if it is synchronous, as cuMemcpy: its end is waited for where
  /// there is host memory on a side, or a side or the context asks for that (SYNC_MEMOPS).
  void copy(const CopyRequest& request, CUstream stream, bool is_synchronous);
  /// cuMemcpyBatchAsync: none is issued unless all are possible. Waits for the last one if
  /// `is_waited_for`, or if one is of pageable memory. `failed` becomes the index of the copy that
  /// cannot be, or SIZE_MAX.
  void copy_batch(std::span<const CopyRequest> requests, CUstream stream, bool is_waited_for,
                  std::size_t& failed);
  /// `count` elements, one after another. If it is synchronous, as cuMemsetD8: its end is waited
  /// for where it is host memory.
  void fill(std::uintptr_t dst, const FillPattern& pattern, std::size_t count, CUstream stream,
            bool is_synchronous);

  /// A copy as a stream of `context` makes it. Failure INVALID_VALUE where find_operand says so,
  /// and for mappings and pool memory that the context's GPU has no access to.
  PreparedCopy prepare(const Context& context, const CopyRequest& request);
  /// Must be called for each prepared copy that is issued.
  void count(const PreparedCopy& prepared);

 private:
  /// A copy from pageable memory to a GPU, as PreparedCopy says which. The call waits for what is
  /// on the stream and reads all of the memory; what the driver's buffer holds then is still to
  /// arrive.
  void upload(const CopyRequest& request, CUstream stream);
  /// What a graph keeps of it; nothing of what it could not be run from.
  [[nodiscard]] GraphWork graph_copy(const Context& context, const CopyRequest& request,
                                     const PreparedCopy& prepared) const;

  const Node& node_;
  const Routing& routing_;
  const Memory& memory_;
  const Pools& pools_;
  Contexts& contexts_;
  Streams& streams_;
  Captures& captures_;
  Devices& devices_;
  Counters& counters_;
};

}  // namespace polypath::sim
