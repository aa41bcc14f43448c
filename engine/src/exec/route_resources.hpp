// What staged routes run on: channels (streams of directed links) and rings (staging memory).
// Created on demand by prepare(), which may be slow; lent to one transfer at a time by lease(),
// which never waits and never lets a transfer queue after one that has not started (DESIGN:
// decision 5).
//
//   prepare()  contexts, peer access, streams, staging memory       any threads, slow
//   lease()    channels and ring for one route of one transfer      any thread, fast
//   (run)      the executor issues on them; no lock is held, no thread waits for a lease
//   finish()   or the lease's end: lent to others again
//
// The one lock is for bookkeeping: the only driver calls made under it ask, and never wait. Threads
// that prepare routes at once take turns at one link and at one staging memory only.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "exec/sequence.hpp"
#include "exec/staging_memory.hpp"
#include "exec/transfer_state.hpp"
#include "plan/cost_model.hpp"

namespace polypath {

/// The runs that a channel or a ring holds and that have not completed, oldest first.
class RunQueue {
 public:
  void add(std::shared_ptr<TransferState> ticket, std::shared_ptr<PooledEvent> end, int operations);
  /// Forgets the oldest as far as they have completed.
  void prune(const CudaDriver& driver);

  [[nodiscard]] bool empty() const noexcept { return runs_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return runs_.size(); }
  /// What they put on a stream.
  [[nodiscard]] int operations() const noexcept { return operations_; }
  // When there are any, the ticket of the oldest, ...
  [[nodiscard]] TransferState& oldest() const { return *runs_.front().ticket; }
  // ... and of the run that queued last:
  [[nodiscard]] TransferState& ticket() const { return *runs_.back().ticket; }
  [[nodiscard]] const std::shared_ptr<PooledEvent>& end() const { return runs_.back().end; }

 private:
  struct Run {
    std::shared_ptr<TransferState> ticket;
    // Recorded after its last operation; channels and rings of one route share it.
    std::shared_ptr<PooledEvent> end;
    int operations = 0;
  };
  std::deque<Run> runs_;
  int operations_ = 0;
};

/// What is lent to one transfer at a time.
struct Leasable {
  RunQueue queue;
  bool lent = false;
  std::uint64_t turn = 0;  ///< larger: lent later; 0: never
  CallerStream lent_to;    ///< for which stream it was lent last
  bool broken = false;     ///< left in an unknown state by a failed call: not used again
};

/// One stream of a directed link, in the context that issues the link's copies.
struct Channel : Leasable {
  CUstream stream = nullptr;
  int gpu = 0;  ///< whose context issues
  CUcontext context = nullptr;
};

/// Staging memory for one route of one transfer at a time.
struct Ring : Leasable {
  explicit Ring(std::unique_ptr<StagingMemory> own) : memory(std::move(own)) {}
  std::unique_ptr<StagingMemory> memory;
};

class RouteResources;

/// What one route of one transfer was lent. It ends itself: what is neither finished nor untouched
/// is broken.
class RouteLease {
 public:
  /// Nothing: of a direct route.
  RouteLease() = default;
  RouteLease(RouteLease&& other) noexcept { swap(other); }
  RouteLease& operator=(RouteLease&& other) noexcept {
    swap(other);
    return *this;
  }
  ~RouteLease();

  /// Whether anything is lent, still.
  explicit operator bool() const noexcept { return owner_ != nullptr; }
  /// The channel of leg 0 or 1; null when no channels were requested.
  [[nodiscard]] const Channel* channel(std::size_t leg) const noexcept { return channels_[leg]; }
  [[nodiscard]] const Ring& ring() const noexcept { return *ring_; }
  /// The GPU that issues leg 0 or 1.
  [[nodiscard]] int gpu(std::size_t leg) const noexcept { return any_[leg]->gpu; }
  [[nodiscard]] CUcontext context(std::size_t leg) const noexcept { return any_[leg]->context; }
  /// What must have completed before the ring is written, or null.
  [[nodiscard]] const std::shared_ptr<PooledEvent>& ring_free() const noexcept {
    return ring_free_;
  }

  /// Whether the caller's stream is held back with several transfers on it: the first leg's channel
  /// has queued them, and not one of them may begin.
  [[nodiscard]] bool is_held_back() const noexcept { return is_held_back_; }

  /// From here on work of the run may be on the channels, or use the ring.
  void begin() noexcept { begun_ = true; }
  [[nodiscard]] bool begun() const noexcept { return begun_; }
  /// All was issued, and `end` was recorded after it: later transfers may queue after this one.
  void finish(std::shared_ptr<PooledEvent> end);

 private:
  friend class RouteResources;
  void swap(RouteLease& other) noexcept;
  void release_locked() noexcept;  // with the owner's lock held

  RouteResources* owner_ = nullptr;
  std::shared_ptr<TransferState> ticket_;
  std::array<Channel*, 2> channels_{};   // by leg
  std::array<const Channel*, 2> any_{};  // of the same links, lent or not
  std::array<int, 2> operations_{};
  Ring* ring_ = nullptr;  // null: of a link alone
  std::shared_ptr<PooledEvent> ring_free_;
  bool is_held_back_ = false;
  bool begun_ = false;
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

  /// The GPUs whose contexts a route needs, in the order of its legs; -1: none.
  using RouteGpus = std::array<int, 4>;
  [[nodiscard]] RouteGpus gpus_of(const Route& route) const;
  /// After a call for `route` failed: asks the contexts that issue its legs, and marks those as
  /// failed that answer with an error each time.
  void mark_failed_gpus(const Route& route) noexcept;
  /// Whether a GPU of the route has failed. No call to the driver.
  [[nodiscard]] bool has_failed_gpu(const Route& route) const;
  /// Whether the GPU has a context already; false where the driver does not say. Fast.
  [[nodiscard]] bool has_context(int gpu);
  /// Slow; throws DriverError.
  void make_context(int gpu) { devices_.context(gpu); }

  /// Makes `route` usable by at least `copies` transfers at once, as far as limits allow. Slow;
  /// throws DriverError. Between its steps it sleeps for `pause`.
  void prepare(const Route& route, int copies, std::chrono::microseconds pause = {});

  [[nodiscard]] bool ready(const Route& route);
  /// As prepare() and ready() for one link alone, without staging memory.
  void prepare_link(int link, int copies, std::chrono::microseconds pause = {});
  [[nodiscard]] bool is_link_ready(int link);
  /// Lends what `route` needs, or nothing: everything is lent, or holds what has not started, or is
  /// full. `operations`: that the run will put on each leg's stream; none: it
  /// needs no channels. `filled`: set where nothing is lent because the caller's own stream, which
  /// is held back, has filled what it was lent before with many transfers.
  std::optional<RouteLease> lease(const Route& route, const std::shared_ptr<TransferState>& ticket,
                                  const std::optional<std::array<int, 2>>& operations,
                                  bool& filled);
  /// Lends a channel of the link alone, as leg 0 of the lease, or nothing: as lease().
  std::optional<RouteLease> lease_link(int link, const std::shared_ptr<TransferState>& ticket,
                                       int operations);
  /// The `copies` to ask prepare_link() for when a link is busy; nothing when it has all that it
  /// may have.
  [[nodiscard]] std::optional<int> next_link_size(int link);
  /// Whether the rings that `route` could take hold work of another stream's transfer.
  [[nodiscard]] bool used_by_another(const Route& route, const CallerStream& caller);
  /// The `copies` to ask prepare() for when a route is busy; nothing when it is as wide as it may
  /// be.
  [[nodiscard]] std::optional<int> next_size(const Route& route);
  EventPool& events() noexcept { return events_; }
  /// Events with timing.
  EventPool& timed_events() noexcept { return timed_events_; }
  Sequences& sequences() noexcept { return sequences_; }

  /// Bytes of staging memory allocated in `memory`.
  std::uint64_t staging_bytes(MemoryId memory);

 private:
  friend class RouteLease;

  // Under the turn of the link or of the memory:
  void add_channel(int link);
  void add_ring(MemoryId via, int gpu);
  /// Lets the GPU reach all rings of the memory.
  void enable_access(MemoryId via, int gpu);
  // With mutex_ held:
  Channel* find_channel(int link, TransferState& ticket, int operations, bool& filled);
  Ring* find_ring(MemoryId via, TransferState& ticket, bool& filled);
  bool is_held_back(const RunQueue& queue, const TransferState& ticket) const;
  void lend(Leasable& what, const TransferState& ticket);

  std::shared_ptr<const CudaDriver> driver_;
  const Node& node_;
  Devices& devices_;
  RingLimits rings_;
  EventPool events_;
  EventPool timed_events_;
  Sequences sequences_;
  std::mutex mutex_;
  std::uint64_t turns_ = 0;
  std::map<int, std::vector<std::unique_ptr<Channel>>> channels_;    // by link
  std::map<MemoryId, std::vector<std::unique_ptr<Ring>>> rings_of_;  // by staging memory
  std::map<MemoryId, std::set<int>> reached_by_;                     // GPUs that reach these rings
  std::map<int, std::mutex> link_turns_;                             // held while channels are made
  std::map<MemoryId, std::mutex> memory_turns_;  // held while rings are made, and given to GPUs
};

}  // namespace polypath
