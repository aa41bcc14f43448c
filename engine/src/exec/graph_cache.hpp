// Instantiated graphs, kept by shape: the schedule of a transfer and the GPU that launches. The
// life of one:
//
//   built       a shape that has no free graph for these addresses, while there is room
//   hit         launched again with the addresses that it holds
//   patched     given other addresses, launched: where there is no room for another
//   evicted     the one that was used longest ago leaves for another
//
// A graph in flight is neither patched nor destroyed. It is launched again only where that adds no
// wait (DESIGN: decision 5): on the stream of its last launch, whose order it follows anyway, or
// after a launch that has started.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "exec/copy_graph.hpp"
#include "exec/transfer_state.hpp"

namespace polypath {

/// What one launch needs.
struct GraphRequest {
  std::shared_ptr<const TransferSchedule> schedule;
  int gpu = 0;                    ///< GPU of the stream to which the caller passed the transfer
  std::vector<NodePlace> places;  ///< a step each
  /// Ids of the buffers, from the driver: memory that was freed and allocated again at the same
  /// address has another one. 0: unknown.
  unsigned long long dst_buffer = 0;
  unsigned long long src_buffer = 0;
};

struct CachedGraph {
  std::shared_ptr<const TransferSchedule> schedule;
  int gpu = 0;
  unsigned long long dst_buffer = 0;
  unsigned long long src_buffer = 0;
  std::optional<CopyGraph> graph;       ///< nothing while it is being built
  std::shared_ptr<TransferState> last;  ///< of its last launch; null: none, or it has completed
  std::shared_ptr<PooledEvent> end;     ///< recorded after its last launch
  bool taken = false;                   ///< acquired, not launched yet
};

/// Thread-safe. Its lock is for bookkeeping: graphs are built, patched, launched and destroyed
/// without it, by the thread that has acquired them.
class GraphCache {
 public:
  struct Counts {
    std::uint64_t launches = 0;
    std::uint64_t hits = 0;
    std::uint64_t patches = 0;
    std::uint64_t patched_nodes = 0;
    std::uint64_t builds = 0;
    std::uint64_t evictions = 0;
    std::uint64_t failed = 0;  ///< could not be built: the transfer went by streams
    std::uint64_t busy = 0;    ///< every graph was in flight: the transfer went by streams
    std::uint64_t cached = 0;  ///< graphs now
  };

  /// Keeps at most `capacity` graphs; 0: a graph is destroyed when its launch has completed.
  GraphCache(std::shared_ptr<const CudaDriver> driver, int capacity);
  ~GraphCache();
  GraphCache(const GraphCache&) = delete;
  GraphCache& operator=(const GraphCache&) = delete;

  /// A graph that holds the request's addresses and may be launched for `ticket`, or null when
  /// there is none. The cache stays its owner; the caller has exclusive use of it until it calls
  /// one of the next four functions.
  CachedGraph* acquire(const GraphRequest& request, const TransferState& ticket);
  /// It was launched for `ticket`; `end` was recorded after it.
  void launched(CachedGraph& graph, std::shared_ptr<TransferState> ticket,
                std::shared_ptr<PooledEvent> end);
  /// It was not launched.
  void release(CachedGraph& graph);
  /// It cannot be launched.
  void give_up(CachedGraph& graph);
  /// It was launched, and its end cannot be known: it is kept, and not used again.
  void lose(CachedGraph& graph);

  /// A context that graphs run in was reset: none of them is touched any more, and none may be
  /// used.
  void abandon() noexcept;

  [[nodiscard]] Counts counts() const;
  /// Sets what has happened, not what is cached, to zero.
  void reset_counts();

 private:
  using Entries = std::list<std::unique_ptr<CachedGraph>>;
  // With mutex_ held:
  [[nodiscard]] bool idle(CachedGraph& graph) const;
  struct Match {
    CachedGraph* exact = nullptr;    ///< holds the addresses, and may be launched without a wait
    CachedGraph* stale = nullptr;    ///< holds the addresses of what is there no more, and is idle
    CachedGraph* running = nullptr;  ///< holds the addresses, and has started
  };
  Match find(const GraphRequest& request, const TransferState& ticket);
  /// The least recently used idle graph of the shape, with other addresses.
  CachedGraph* oldest_idle(const GraphRequest& request);
  CachedGraph* take(CachedGraph& graph);
  [[nodiscard]] bool may_build(const GraphRequest& request) const;
  [[nodiscard]] bool has_room() const;
  /// Takes one out that is idle, for the caller to destroy without the lock.
  bool evict_one(Entries& out);
  /// A place for a graph of the request, taken.
  CachedGraph* add(const GraphRequest& request);
  void remember_failure(const GraphRequest& request, int code);
  /// Takes it out of the lookup, and gives its place in entries_.
  Entries::iterator forget(const CachedGraph& graph);

  // Without it, on graphs that the caller has taken:
  bool patch(CachedGraph& graph, const GraphRequest& request);
  /// On false `failure` is the driver's code.
  bool build(CachedGraph& graph, const GraphRequest& request, int& failure);

  std::shared_ptr<const CudaDriver> driver_;
  std::size_t capacity_;
  mutable std::mutex mutex_;
  std::size_t limit_;  ///< capacity_, or less since memory ran out
  int pause_ = 0;      ///< graphs that are not built, after one could not be
  int builds_since_shrunk_ = 0;
  Entries entries_;  ///< used last first
  Entries retired_;  ///< in flight, to be destroyed
  Entries lost_;
  std::unordered_multimap<std::uint64_t, Entries::iterator> by_shape_;
  std::vector<std::shared_ptr<const TransferSchedule>> refused_;  ///< by the driver; never retried
  Counts counts_;
};

}  // namespace polypath
