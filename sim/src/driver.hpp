// The simulated driver: its parts, and the one lock that guards them. One a process (instance.hpp).
//
// The C functions (api_*.cpp, ipc.cpp, control.cpp, nvml.cpp) reach it by call() (call.hpp) and
// call the parts that they mean. Each part needs only those above it in the list of members below:
//
//   memory, contexts, graphs             what there is
//   devices                              run operations, and keep time
//   captures, streams, events            the order of work
//   pools, deallocator, virtual memory   memory that is given and taken in that order
//   copies, kernels, graph execs         the work
//   context lifecycle                    making a context, and ending all that belongs to it
#pragma once

#include <memory>

#include "captures.hpp"
#include "context_lifecycle.hpp"
#include "contexts.hpp"
#include "copies.hpp"
#include "counters.hpp"
#include "cuda_api.hpp"
#include "deallocator.hpp"
#include "devices.hpp"
#include "events.hpp"
#include "failure.hpp"
#include "graph_execs.hpp"
#include "graphs.hpp"
#include "kernels.hpp"
#include "memory.hpp"
#include "mode.hpp"
#include "pools.hpp"
#include "routing.hpp"
#include "streams.hpp"
#include "topology/node.hpp"
#include "virtual_memory.hpp"

namespace polypath::sim {

inline constexpr int kCudaVersion = 13020;  ///< of this driver, as CUDA_VERSION counts

class Driver {
 public:
  /// Starts the node's background traffic. Failure INVALID_VALUE when it names a link that the node
  /// does not have.
  Driver(Node node, const Mode& mode);

  const Node node;
  const Mode mode;
  DriverMutex mutex;  ///< guards all that follows, but what its comment calls lock-free
  Counters counters;

  [[nodiscard]] Memory& memory() noexcept { return memory_; }
  [[nodiscard]] Contexts& contexts() noexcept { return contexts_; }
  [[nodiscard]] Graphs& graphs() noexcept { return graphs_; }
  [[nodiscard]] Devices& devices() noexcept { return *devices_; }
  [[nodiscard]] Captures& captures() noexcept { return captures_; }
  [[nodiscard]] Streams& streams() noexcept { return streams_; }
  [[nodiscard]] Events& events() noexcept { return events_; }
  [[nodiscard]] Pools& pools() noexcept { return pools_; }
  [[nodiscard]] Deallocator& deallocator() noexcept { return deallocator_; }
  [[nodiscard]] VirtualMemory& virtual_memory() noexcept { return virtual_memory_; }
  [[nodiscard]] Copies& copies() noexcept { return copies_; }
  [[nodiscard]] Kernels& kernels() noexcept { return kernels_; }
  [[nodiscard]] GraphExecs& graph_execs() noexcept { return graph_execs_; }
  [[nodiscard]] ContextLifecycle& context_lifecycle() noexcept { return context_lifecycle_; }

 private:
  std::unique_ptr<Devices> make_devices();
  std::unique_ptr<KernelRunner> make_kernel_runner();

  const Routing routing_;
  Memory memory_;
  Contexts contexts_;
  Graphs graphs_;
  const std::unique_ptr<Devices> devices_;
  Captures captures_;
  Streams streams_;
  Events events_;
  Pools pools_;
  Deallocator deallocator_;
  VirtualMemory virtual_memory_;
  Copies copies_;
  Kernels kernels_;
  GraphExecs graph_execs_;
  ContextLifecycle context_lifecycle_;
};

}  // namespace polypath::sim
