// Threads that make routes ready while transfers go on without them, so that creating contexts,
// streams, staging memory and imports of other processes' memory is never on a caller's path.
//
// A context takes longest, and contexts of different GPUs are made at once. So each missing context
// is a task of its own, which precedes the routes and imports that need it. A route whose contexts
// exist is made ready before any further context is.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "core/load_monitor.hpp"
#include "exec/imported_memory.hpp"
#include "exec/retry.hpp"
#include "exec/route_resources.hpp"

namespace polypath {

/// Thread-safe. Threads start with requests, at most `threads`; with the object they end after the
/// tasks that are under way, and leave the others.
class Preparer {
 public:
  /// All must outlive it. `threads` is at least 1. Links are not probed without `load`.
  Preparer(const CudaDriver& driver, RouteResources& resources, ImportedMemories& imports,
           int threads, LoadMonitor* load = nullptr);
  ~Preparer();
  Preparer(const Preparer&) = delete;
  Preparer& operator=(const Preparer&) = delete;

  /// Asks for `route` to serve `copies` transfers at once. Returns at once; a request that is
  /// already waiting or under way is not taken again. One that failed is tried again with growing
  /// pauses (exec/retry.hpp).
  void request(const Route& route, int copies);
  /// Asks for `memory` to be imported for `gpu`, in the same way; ImportedMemory knows what failed.
  void request(std::shared_ptr<ImportedMemory> memory, int gpu);
  /// Whether the last request for the route failed.
  bool failed(const Route& route);

  /// Ends after the tasks that are under way; what is asked for later is not done. The destructor
  /// waits for that.
  void stop() noexcept;
  /// Waits until nothing is left to do, or nothing will be done.
  void wait();

 private:
  struct Widen {
    Route route;
    int copies = 1;
    friend bool operator==(const Widen&, const Widen&) = default;
  };
  struct Import {
    std::shared_ptr<ImportedMemory> memory;
    int gpu = 0;
    friend bool operator==(const Import&, const Import&) = default;
  };
  struct MakeContext {
    int gpu = 0;
    friend bool operator==(const MakeContext&, const MakeContext&) = default;
  };
  using What = std::variant<Widen, Import, MakeContext>;
  struct Task {
    What what;
    bool is_taken = false;  ///< by a thread that carries it out
  };
  using Tasks = std::list<Task>;

  /// A route that could not be prepared.
  struct Failure {
    Route route;
    Retry retry;
  };

  // With mutex_ held:
  /// Adds it after the missing contexts that it needs.
  void add(What what);
  bool is_known(const What& what) const;
  /// The task to carry out next, or the end.
  Tasks::iterator next();
  bool waits_for_context(const What& what) const;
  /// Whether there is a thread to carry out what was added.
  bool start_thread();
  std::vector<Failure>::iterator failure_of(const Route& route);
  void remember(const Route& route, bool done);
  // Without it:
  /// The GPUs whose contexts it needs.
  RouteResources::RouteGpus gpus_of(const What& what) const;
  /// Whether it was done; what failed is logged.
  bool carry_out(const What& what);
  void run(std::stop_token stop);

  const CudaDriver& driver_;
  RouteResources& resources_;
  ImportedMemories& imports_;
  LoadMonitor* load_;
  const std::size_t max_threads_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  bool stopped_ = false;
  Tasks tasks_;  // oldest first, until they are done
  std::vector<Failure> failures_;
  std::set<std::string> told_;  // causes that were logged
  std::size_t idle_ = 0;        // threads that carry out nothing
  std::vector<std::jthread> threads_;
};

}  // namespace polypath
