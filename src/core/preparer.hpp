// A thread that makes routes ready while transfers go on without them, so that creating contexts,
// streams, staging memory and imports of other processes' memory is never on a caller's path.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "exec/imported_memory.hpp"
#include "exec/route_resources.hpp"

namespace polypath {

/// Thread-safe. The thread starts with the first request and ends with the object.
class Preparer {
 public:
  Preparer(const CudaDriver& driver, RouteResources& resources, ImportedMemories& imports);
  ~Preparer();
  Preparer(const Preparer&) = delete;
  Preparer& operator=(const Preparer&) = delete;

  /// Asks for `route` to serve `copies` transfers at once. Returns at once; a request that is already
  /// waiting or under way, or that failed before, is not taken again.
  void request(const Route& route, int copies);
  /// Asks for `memory` to be imported for `gpu`, in the same way; ImportedMemory knows what failed.
  void request(std::shared_ptr<ImportedMemory> memory, int gpu);
  /// Whether a request for the route failed.
  bool failed(const Route& route);
  /// Waits until nothing is left to do.
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

  void add(Task task);  // with mutex_ held
  /// Whether it was done; what failed is logged.
  bool carry_out(const Task& task);
  void run(std::stop_token stop);

  const CudaDriver& driver_;
  RouteResources& resources_;
  ImportedMemories& imports_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Task> tasks_;  // the first one may be under way
  std::vector<Route> failed_;
  std::jthread thread_;
};

}  // namespace polypath
