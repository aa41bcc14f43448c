// What stands behind the opaque handles: contexts, streams, events, pools; graphs are in graph.hpp.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "capture.hpp"
#include "cuda_api.hpp"
#include "handle_table.hpp"
#include "memory.hpp"
#include "operation.hpp"

namespace polypath::sim {

/// Operations that a stream takes behind the one it is at; measured with copies on an H200.
inline constexpr int kStreamDepth = 1021;

struct Stream {
  CUcontext context = nullptr;
  int device = 0;
  std::uint64_t id = 0;  ///< never given out twice
  unsigned flags = 0;    ///< of cuStreamCreate
  int priority = 0;
  bool is_legacy = false;  ///< the context's default stream
  OperationPtr tail;       ///< last operation issued; null: none yet
  /// Of its operations, how many have not completed.
  std::shared_ptr<int> queued = std::make_shared<int>(0);
  CaptureMember capture;

  /// Ordered with the legacy default stream of its context.
  [[nodiscard]] bool is_blocking() const noexcept { return (flags & CU_STREAM_NON_BLOCKING) == 0; }
};

struct Event {
  CUcontext context = nullptr;
  unsigned flags = 0;
  OperationPtr record;          ///< the most recent record; null: never recorded
  std::uint64_t serial = 0;     ///< of that record
  std::uint64_t stream_id = 0;  ///< that it was recorded on
  CaptureMember capture;        ///< set when it was last recorded in a capture

  [[nodiscard]] bool has_timing() const noexcept { return (flags & CU_EVENT_DISABLE_TIMING) == 0; }
};

struct Context {
  CUcontext handle = nullptr;
  int device = 0;
  std::uint64_t id = 0;  ///< never given out twice
  unsigned flags = 0;
  bool is_primary = false;
  std::shared_ptr<void> room;   ///< what it takes of its GPU's memory
  std::shared_ptr<void> claim;  ///< to the GPU, where one process excludes the others
  std::set<CUcontext> peers;    ///< contexts whose device memory work of this one may reach
  Stream legacy;
  std::map<std::thread::id, std::unique_ptr<Stream>> per_thread;
  std::set<CUstream> streams;
  std::set<CUevent> events;
  /// Work that no stream of it shows: the last operations of streams destroyed with work under way,
  /// and nodes of graphs that were launched on another context's stream.
  std::vector<OperationPtr> orphans;

  void add_orphan(OperationPtr operation) {
    std::erase_if(orphans, [](const OperationPtr& other) { return other->done; });
    orphans.push_back(std::move(operation));
  }
};

/// Memory of a device that is allocated in the order of streams.
struct Pool {
  int device = 0;
  Access access;
  bool is_destroyed = false;  ///< what was allocated from it stays
};

using ContextTable = HandleTable<CUcontext, Context, 0x51C0>;
using StreamTable = HandleTable<CUstream, Stream, 0x5150>;
using EventTable = HandleTable<CUevent, Event, 0x51E0>;
using PoolTable = HandleTable<CUmemoryPool, Pool, 0x51B0>;
using GraphTable = HandleTable<CUgraph, Graph, 0x51A0>;
using GraphNodeTable = HandleTable<CUgraphNode, GraphNodeId, 0x51A1>;
using GraphExecTable = HandleTable<CUgraphExec, GraphExec, 0x51A2>;

}  // namespace polypath::sim
