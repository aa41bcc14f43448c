// A thread that makes routes ready while transfers go on without them, so that creating contexts,
// streams, staging memory and imports of other processes' memory is never on a caller's path.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
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

/// Thread-safe. The thread starts with the first request; with the object it ends after the task
/// that is under way, and leaves the others.
class Preparer {
 public:
  /// All must outlive it. Links are not probed without `load`.
  Preparer(const CudaDriver& driver, RouteResources& resources, ImportedMemories& imports,
           LoadMonitor* load = nullptr);
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

  /// Ends after the task that is under way; what is asked for later is not done. The destructor
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
  using Task = std::variant<Widen, Import>;

  /// A route that could not be prepared.
  struct Failure {
    Route route;
    Retry retry;
  };

  // With mutex_ held:
  void add(Task task);
  std::vector<Failure>::iterator failure_of(const Route& route);
  void remember(const Route& route, bool done);
  /// Whether it was done; what failed is logged.
  bool carry_out(const Task& task);
  void run(std::stop_token stop);

  const CudaDriver& driver_;
  RouteResources& resources_;
  ImportedMemories& imports_;
  LoadMonitor* load_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  bool stopped_ = false;
  std::deque<Task> tasks_;  // the first one may be under way
  std::vector<Failure> failures_;
  std::set<std::string> told_;  // causes that were logged; of the thread
  std::jthread thread_;
};

}  // namespace polypath
