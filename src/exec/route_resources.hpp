// What staged routes run on: channels (streams of directed links) and rings (staging memory). Created on
// demand by prepare(), which may be slow; lent to transfers by lease(), which never waits and never
// lets a transfer queue behind one that has not started (DESIGN: decision 5).
//
//   prepare()  contexts, peer access, streams, staging memory      any thread, slow
//   lease()    channels and ring for one route of one transfer      under lock(), fast
//   (run)      the executor issues copies on them                   under lock()
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "exec/ticket.hpp"
#include "plan/cost_model.hpp"

namespace polypath {

/// One stream of a directed link, in the context that issues the link's copies.
struct Channel {
  CUstream stream = nullptr;
  int gpu = 0;  ///< whose context issues
  CUcontext context = nullptr;
  std::shared_ptr<Ticket> tail;  ///< the transfer that queued last
  std::uint64_t run = 0;         ///< the run that leased it last, ...
  CallerStream leased_to;        ///< ... and for which stream: its ticket is not the tail yet
  bool broken = false;           ///< left in an unknown state by a failed call: not used again
};

/// Staging memory for one route of one transfer at a time.
struct Ring {
  CUdeviceptr memory = 0;
  std::uint64_t bytes = 0;
  CUcontext context = nullptr;  ///< that it was allocated in
  std::shared_ptr<Ticket> tail;
  std::shared_ptr<PooledEvent> last_read;  ///< recorded behind the last reader of its slots
  std::uint64_t run = 0;                   ///< the run that leased it last
  bool broken = false;
};

/// Where the source and the destination of a transfer are for the GPUs that issue a route's first and
/// last leg: elsewhere than for the caller when another process has the memory.
struct RouteEnds {
  CUdeviceptr dst = 0;
  CUdeviceptr src = 0;
};

struct RouteLease {
  Channel* first = nullptr;   ///< of leg 0
  Channel* second = nullptr;  ///< of leg 1
  Ring* ring = nullptr;
  RouteEnds ends;
  /// What the first leg must wait for before it writes to the ring, or null.
  std::shared_ptr<PooledEvent> ring_free;
};

class RouteResources {
 public:
  /// `staging_bytes`: the limit for each staging memory.
  RouteResources(std::shared_ptr<const CudaDriver> driver, const Node& node, Devices& devices,
                 std::uint64_t staging_bytes);
  ~RouteResources();
  RouteResources(const RouteResources&) = delete;
  RouteResources& operator=(const RouteResources&) = delete;

  /// The GPU whose context issues the copies of a link.
  [[nodiscard]] int issuer(int link) const;

  /// What a route's slots, and a plan's routes, must fit.
  [[nodiscard]] const RingLimits& ring_limits() const noexcept { return rings_; }

  /// Makes `route` usable by at least `copies` transfers at once, as far as limits allow. Slow; throws
  /// DriverError. Concurrent calls take turns.
  void prepare(const Route& route, int copies);

  /// Guards leases, events and the issue of copies.
  [[nodiscard]] std::mutex& lock() noexcept { return mutex_; }

  // With lock() held:
  [[nodiscard]] bool ready(const Route& route) const;
  /// Lends what `route` needs, or nothing. `run` tells the leases of one run apart.
  std::optional<RouteLease> lease(const Route& route, const RouteEnds& ends,
                                  const std::shared_ptr<Ticket>& ticket, std::uint64_t run);
  /// Whether the rings that `route` could take hold work of another stream's transfer.
  [[nodiscard]] bool used_by_another(const Route& route, const CallerStream& caller) const;
  /// The `copies` to ask prepare() for when a route is busy; nothing when it is as wide as it may be.
  [[nodiscard]] std::optional<int> next_size(const Route& route) const;
  EventPool& events() noexcept { return events_; }

  /// Bytes of staging memory allocated in `memory`. Takes lock().
  std::uint64_t staging_bytes(MemoryId memory);

 private:
  void add_channel(int link);
  void add_ring(MemoryId via, int gpu);
  Channel* find_channel(int link, const Ticket& ticket, std::uint64_t run);
  Ring* find_ring(MemoryId via, const Ticket& ticket, std::uint64_t run);

  std::shared_ptr<const CudaDriver> driver_;
  const Node& node_;
  Devices& devices_;
  RingLimits rings_;
  std::mutex preparing_;
  std::mutex mutex_;
  EventPool events_;
  std::map<int, std::vector<std::unique_ptr<Channel>>> channels_;    // by link
  std::map<MemoryId, std::vector<std::unique_ptr<Ring>>> rings_of_;  // by staging memory
};

}  // namespace polypath
