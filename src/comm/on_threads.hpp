// Collective calls for several ranks of one process, which wait for each other: each on a thread.
#pragma once

#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "base/own_thread.hpp"
#include "comm/comm_handle.hpp"
#include "core/c_boundary.hpp"
#include "polypath/comm.h"

namespace polypath {

/// Calls `body` for 0 to count - 1 at once, each on a thread; returns what each threw, null for
/// nothing.
inline std::vector<std::exception_ptr> thrown_on_threads(
    int count, const std::function<void(std::size_t)>& body) {
  std::vector<std::exception_ptr> thrown(static_cast<std::size_t>(count));
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < thrown.size(); ++i)
    threads.push_back(own_thread([&, i] {
      try {
        body(i);
      } catch (...) {
        thrown[i] = std::current_exception();
      }
    }));
  threads.clear();  // joins them
  return thrown;
}

/// The same; throws what the first threw that threw.
inline void on_threads(int count, const std::function<void(std::size_t)>& body) {
  for (const std::exception_ptr& one : thrown_on_threads(count, body))
    if (one) std::rethrow_exception(one);
}

/// Throws InvalidArgument unless they are `count` ranks of one communicator, one at least.
inline void require_all(polypath_comm* const* comms, int count) {
  require(comms != nullptr, "comms is null");
  require(count > 0, "count is not positive");
  for (int i = 0; i < count; ++i) {
    require(comms[i] != nullptr, "one of comms is null");
    for (int j = 0; j < i; ++j) require(comms[j] != comms[i], "one of comms is given twice");
    // Of several nodes each has one of its own below.
    require(
        comms[0]->nodes != nullptr || comms[i]->communicator->is_beside(*comms[0]->communicator),
        "comms are of several communicators");
  }
}

}  // namespace polypath
