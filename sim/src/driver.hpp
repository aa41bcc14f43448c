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
#include "objects.hpp"
#include "pools.hpp"
#include "routing.hpp"
#include "streams.hpp"
#include "topology/node.hpp"
#include "virtual_memory.hpp"

namespace polypath::sim {

inline constexpr int kCudaVersion = 13020;  ///< of this driver, as CUDA_VERSION counts

class Driver {
 public:
  Driver(Node node, const Mode& mode);

  const Node node;
  const Mode mode;
  DriverMutex mutex;  ///< guards all that follows, but marks of handles and captures().any()

  Memory memory;
  Counters counters;

  [[nodiscard]] Contexts& contexts() noexcept { return contexts_; }
  [[nodiscard]] const Contexts& contexts() const noexcept { return contexts_; }
  [[nodiscard]] Streams& streams() noexcept { return streams_; }
  [[nodiscard]] Events& events() noexcept { return events_; }
  [[nodiscard]] Pools& pools() noexcept { return pools_; }
  [[nodiscard]] Deallocator& deallocator() noexcept { return deallocator_; }
  [[nodiscard]] VirtualMemory& virtual_memory() noexcept { return virtual_memory_; }
  [[nodiscard]] Copies& copies() noexcept { return copies_; }
  [[nodiscard]] Kernels& kernels() noexcept { return kernels_; }
  [[nodiscard]] GraphExecs& graph_execs() noexcept { return graph_execs_; }
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

 private:
  std::unique_ptr<Devices> make_devices();
  std::unique_ptr<KernelRunner> make_kernel_runner();

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
  Copies copies_{node,     routing_,  memory,    pools_,  contexts_,
                 streams_, captures_, *devices_, counters};
  Kernels kernels_{node, mutex, contexts_, streams_, captures_, *devices_, make_kernel_runner()};
  GraphExecs graph_execs_{node,    memory,  graphs_,  contexts_, streams_,
                          events_, copies_, kernels_, *devices_, counters};
  int contexts_in_making_ = 0;
  int held_contexts_ = 0;  ///< number of creations that must run before one of them ends
};

}  // namespace polypath::sim
