// How contexts are made, and what ends with them; the primary contexts of the GPUs.
//
// ContextLifecycle owns the primary contexts' counts and this process's claims to GPUs, guarded by
// the driver's lock. What makes or ends a context gives the lock back meanwhile: what was looked up
// has to be looked up again.
#pragma once

#include <memory>
#include <vector>

#include "contexts.hpp"
#include "counters.hpp"
#include "cuda_api.hpp"
#include "deallocator.hpp"
#include "devices.hpp"
#include "events.hpp"
#include "graph_execs.hpp"
#include "kernels.hpp"
#include "memory.hpp"
#include "mode.hpp"
#include "streams.hpp"
#include "topology/node.hpp"

namespace polypath::sim {

class ContextLifecycle {
 public:
  /// What contexts are made of, and what may belong to them. All of it must outlive this.
  struct Parts {
    Memory& memory;
    Devices& devices;
    Contexts& contexts;
    Streams& streams;
    Events& events;
    Deallocator& deallocator;
    Kernels& kernels;
    GraphExecs& graph_execs;
    Counters& counters;
  };
  /// `mutex`: the driver's lock.
  ContextLifecycle(const Node& node, const Mode& mode, DriverMutex& mutex, const Parts& parts);

  /// Failure DEVICE_UNAVAILABLE when the compute mode forbids it, OUT_OF_MEMORY when the GPU is
  /// full.
  CUcontext create(int device, unsigned flags);
  /// Waits for the context's work, then releases all that belongs to it. Failure INVALID_CONTEXT
  /// for a primary one, which ends with its last release, and for none.
  void destroy(CUcontext handle);

  /// The device's primary context; null: none now.
  [[nodiscard]] CUcontext primary(int device) const;
  /// Makes it if there is none now. Failures: as create().
  CUcontext retain_primary(int device);
  /// The last release ends it. Failure INVALID_CONTEXT when none is due.
  void release_primary(int device);
  /// Ends it, with all instantiated graphs that run in it. Earlier retains still need their
  /// releases.
  void reset_primary(int device);

  /// From now on creations wait until `count` of them run at once, or until they did (0: no
  /// longer).
  void hold_creations(int count) noexcept { held_ = count; }

 private:
  struct Primary {
    CUcontext handle = nullptr;  // null: none now; it may have been retained, and reset since
    int retained = 0;
  };

  /// What making a context takes; before make(), as Devices::take_long().
  void take_time();
  CUcontext make(int device, unsigned flags, bool is_primary);
  void end(CUcontext handle);
  /// Ends the primary context of the device, if there is one now.
  void end_primary(int device);
  Primary& primary_of(int device) { return primaries_[static_cast<std::size_t>(device)]; }

  const Node& node_;
  const Mode& mode_;
  DriverMutex& mutex_;
  const Parts parts_;
  std::vector<Primary> primaries_;           // by device
  std::vector<std::weak_ptr<void>> claims_;  // by device: this process's, in exclusive_process mode
  int in_making_ = 0;
  int held_ = 0;  // number of creations that must run before one of them ends
};

}  // namespace polypath::sim
