// What each phase of a CUDA graph costs, for one staged transfer: creation, construction,
// instantiation, first launch, later launches, patching, destruction; next to the same copies by
// streams and events.
#pragma once

#include <cstdint>
#include <optional>

#include "driver/cuda_driver.hpp"
#include "exec/devices.hpp"
#include "lab/pairs.hpp"
#include "topology/node.hpp"

namespace polypath {

struct GraphPhasesRequest {
  MemoryId src;
  MemoryId dst;
  std::uint64_t bytes = 0;
  int nodes = 2;       ///< of the graph: even, 2 to 256; half as many chunks
  int iterations = 1;  ///< timed graphs, at least 1
};

/// Microseconds, medians over the iterations.
struct GraphPhases {
  MemoryId via;  ///< the staging memory
  // CPU time of the calls of a phase.
  double create_us = 0;
  double construct_us = 0;
  double instantiate_us = 0;
  double first_launch_us = 0;
  double launch_us = 0;  ///< of a graph that was launched before
  double patch_us = 0;   ///< new addresses for every node
  double destroy_us = 0;
  // From the first call to the end of the bytes, as the CPU sees it.
  double first_latency_us = 0;    ///< create, construct, instantiate, launch
  double latency_us = 0;          ///< launch
  double patched_latency_us = 0;  ///< patch, launch
  double stream_issue_us = 0;
  double stream_latency_us = 0;
  /// That the first graph of this shape took when it was instantiated and launched, on all GPUs of
  /// the transfer; nothing when a GPU had more free memory after it, because another process freed
  /// some.
  std::optional<std::uint64_t> gpu_bytes;
};

/// Runs it on buffers of its own, two of the message's size in `src` and in `dst` and one in the
/// staging memory: that of another GPU which has peer access to both sides, or else of the host.
/// Contents are random, destinations poisoned, and every byte is compared: before what is timed,
/// after it, and both times after a graph was patched to the second pair of buffers.
///
/// `clock` is that of the CPU that issues. Nothing else may use the GPUs. The calling thread's
/// current context stays as it was. `driver` is that of `devices`, and has the GPUs of `node`.
///
/// Throws InvalidArgument for a request that is not allowed or a pair without a staging memory,
/// NotSupported for a driver without graphs, DriverError, and Error when bytes differ. All objects
/// are destroyed in every case.
GraphPhases measure_graph_phases(const CudaDriver& driver, const Node& node, Devices& devices,
                                 const GraphPhasesRequest& request,
                                 const ClockFunction& clock = steady_clock_us);

}  // namespace polypath
