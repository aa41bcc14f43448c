// The state of the simulated driver: one a process, made by cuInit, guarded by one lock. The C
// functions reach it by call() (call.hpp). What belongs together stands in one file each:
// api_context.cpp, api_stream.cpp, copies.cpp, graphs.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "captures.hpp"
#include "contexts.hpp"
#include "counters.hpp"
#include "cuda_api.hpp"
#include "deallocator.hpp"
#include "devices.hpp"
#include "events.hpp"
#include "failure.hpp"
#include "graphs.hpp"
#include "kernel_runner.hpp"
#include "memory.hpp"
#include "mode.hpp"
#include "objects.hpp"
#include "pools.hpp"
#include "routing.hpp"
#include "streams.hpp"
#include "topology/node.hpp"
#include "virtual_memory.hpp"

namespace polypath::sim {

inline constexpr int kCudaVersion = 13020;  ///< of this driver, as CUDA_VERSION counts

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

class Driver {
 public:
  Driver(Node node, const Mode& mode);

  const Node node;
  const Mode mode;
  DriverMutex mutex;  ///< guards all that follows, but marks of handles and captures().any()

  HandleTable<CUgraphExec, GraphExec, 0x51A2> graph_execs;
  ModuleTable modules;
  FunctionTable functions;
  Memory memory;
  Counters counters;

  [[nodiscard]] Contexts& contexts() noexcept { return contexts_; }
  [[nodiscard]] const Contexts& contexts() const noexcept { return contexts_; }
  [[nodiscard]] Streams& streams() noexcept { return streams_; }
  [[nodiscard]] Events& events() noexcept { return events_; }
  [[nodiscard]] Pools& pools() noexcept { return pools_; }
  [[nodiscard]] const Pools& pools() const noexcept { return pools_; }
  [[nodiscard]] Deallocator& deallocator() noexcept { return deallocator_; }
  [[nodiscard]] VirtualMemory& virtual_memory() noexcept { return virtual_memory_; }
  [[nodiscard]] Graphs& graphs() noexcept { return graphs_; }
  [[nodiscard]] Captures& captures() noexcept { return captures_; }

  // ---- time (devices.hpp) ----

  [[nodiscard]] Devices& devices() noexcept { return *devices_; }

  // ---- contexts (api_context.cpp) ----

  /// What making one takes; to be called before create_context(), as take_long().
  void take_context_time();
  /// From now on that waits until `count` of them do so at once, or until they did (0: no longer).
  void hold_contexts(int count) noexcept { held_contexts_ = count; }
  /// Failure DEVICE_UNAVAILABLE when the compute mode forbids it, OUT_OF_MEMORY when the GPU is
  /// full.
  CUcontext create_context(int device, unsigned flags, bool is_primary);
  /// Waits for the context's work, then releases all that belongs to it.
  void destroy_context(CUcontext handle);
  /// Destroys the primary context of the device, if there is one now.
  void end_primary(int device);
  struct Primary {
    CUcontext handle = nullptr;  ///< null: none now; it may have been retained, and reset since
    int retained = 0;
  };
  std::vector<Primary> primaries;  ///< by device
  std::vector<std::weak_ptr<void>>
      claims;  ///< by device: this process's, in exclusive_process mode

  // ---- copies (copies.cpp) ----
  /// What the driver's own copy from or to pageable memory reaches.
  [[nodiscard]] double pageable_gbps(const CopyRequest& request, const Operand& to) const;

  /// cuMemcpyAsync on `stream`; if it is synchronous, as cuMemcpy: its end is waited for where
  /// there is host memory on a side, or a side or the context asks for that (SYNC_MEMOPS).
  void copy(const CopyRequest& request, CUstream stream, bool is_synchronous);
  /// A copy from pageable memory to a GPU, as PreparedCopy says which. The call waits for what is
  /// on the stream and reads all of the memory; what the driver's buffer holds then is still to
  /// arrive.
  void upload(const CopyRequest& request, CUstream stream);
  /// `count` elements, one after another. If it is synchronous, as cuMemsetD8: its end is waited
  /// for where it is host memory.
  void fill(std::uintptr_t dst, const FillPattern& pattern, std::size_t count, CUstream stream,
            bool is_synchronous);
  /// True when work of the context gets at the memory itself, without a detour.
  [[nodiscard]] bool reaches(const Context& context, const Allocation& allocation,
                             CUmemAccess_flags access) const;
  /// A copy as a stream of `context` makes it. Failure INVALID_VALUE where find_operand says so,
  /// and for mappings and pool memory that the context's GPU has no access to.
  PreparedCopy prepare_copy(const Context& context, const CopyRequest& request);
  /// What a graph keeps of it; nothing of what it could not be run from.
  [[nodiscard]] GraphWork graph_copy(const Context& context, const CopyRequest& request,
                                     const PreparedCopy& prepared) const;
  void count(const PreparedCopy& prepared);

  // ---- kernels (kernel_runner.cpp) ----

  /// Puts it on the stream, or into its capture. Failure INVALID_CONTEXT when the stream is of
  /// another context.
  void launch_kernel(const KernelCall& kernel, CUstream stream);
  /// As the real driver to load a module: waits for the kernels that run on the GPU, or could, and
  /// lets no other thread of the program call meanwhile (docs/cuda-notes.md).
  void wait_for_kernels(int device);
  /// With its functions.
  void remove_module(CUmodule handle);
  /// What runs it. A kernel that fails leaves its context with that error.
  Operation kernel_operation(const KernelCall& kernel);

  // ---- graphs (graph_execs.cpp) ----

  /// Failure NOT_SUPPORTED for a graph with captured work of which nothing is known; otherwise as
  /// require_placed.
  CUgraphExec instantiate(CUgraph handle);
  /// Failure INVALID_VALUE when memory of the copy is gone or placed differently than it was,
  /// CONTEXT_IS_DESTROYED when its context is.
  void require_placed(const GraphCopy& copy);
  /// Runs all nodes as one item of the stream. On any failure none is run.
  void launch(CUgraphExec handle, CUstream stream);
  /// Destroys all instantiated graphs with a node that runs in the context.
  void destroy_graph_execs(CUcontext context);
  /// To be called before an instantiated graph is destroyed or changed.
  void note_if_in_flight(const GraphExec& exec);

 private:
  void note_launched(const OperationPtr& issued);
  std::unique_ptr<Devices> make_devices();
  std::unique_ptr<Kernels> make_kernels();

  Contexts contexts_;
  Graphs graphs_;
  Captures captures_{graphs_};
  Routing routing_;
  std::unique_ptr<Devices> devices_;
  Events events_{contexts_, mode.is_functional};
  Streams streams_{contexts_, captures_, *devices_, mode.timeout};
  Pools pools_{memory, node.gpus.size()};
  Deallocator deallocator_{memory, pools_, streams_, *devices_};
  VirtualMemory virtual_memory_{node, memory, deallocator_, *devices_};
  std::unique_ptr<Kernels> kernels_;
  std::vector<std::weak_ptr<Operation>> launched_;  ///< kernels that have not all ended
  int contexts_in_making_ = 0;
  int held_contexts_ = 0;  ///< number of creations that must run before one of them ends
};

}  // namespace polypath::sim
