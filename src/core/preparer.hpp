// A thread that makes routes ready while transfers go on without them, so that creating contexts,
// streams and staging memory is never on a caller's path.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "exec/route_resources.hpp"

namespace polypath {

/// Thread-safe. The thread starts with the first request and ends with the object.
class Preparer {
 public:
  Preparer(const CudaDriver& driver, RouteResources& resources);
  ~Preparer();
  Preparer(const Preparer&) = delete;
  Preparer& operator=(const Preparer&) = delete;

  /// Asks for `route` to serve `copies` transfers at once. Returns at once; a request that is already
  /// waiting or under way, or that failed before, is not taken again.
  void request(const Route& route, int copies);
  /// Whether a request for the route failed.
  bool failed(const Route& route);
  /// Waits until nothing is left to do.
  void wait();

 private:
  struct Task {
    Route route;
    int copies = 1;
    friend bool operator==(const Task&, const Task&) = default;
  };
  void run(std::stop_token stop);

  const CudaDriver& driver_;
  RouteResources& resources_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Task> tasks_;  // the first one may be under way
  std::vector<Route> failed_;
  std::jthread thread_;
};

}  // namespace polypath
