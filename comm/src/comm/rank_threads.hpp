// Collective calls for several ranks of one process, which wait for each other: each on a thread.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <string_view>
#include <thread>
#include <vector>

#include "base/thread.hpp"
#include "comm/comm_handle.hpp"
#include "core/c_boundary.hpp"
#include "polypath/comm.h"

namespace polypath {

/// Calls `body` for 0 to count - 1 at once, each on a thread; returns what each threw, null for
/// nothing.
inline std::vector<std::exception_ptr> exceptions_on_rank_threads(
    int count, const std::function<void(std::size_t)>& body) {
  std::vector<std::exception_ptr> thrown(static_cast<std::size_t>(count));
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < thrown.size(); ++i)
    threads.push_back(make_thread([&, i] {
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
  for (const std::exception_ptr& exception : exceptions_on_rank_threads(count, body))
    if (exception) std::rethrow_exception(exception);
}

/// Throws InvalidArgument unless they are `count` handles, one at least, each given once. `name`:
/// the argument's.
template <typename Handle>
void require_handles(Handle* const* handles, int count, std::string_view name) {
  if (handles == nullptr) throw InvalidArgument(fmt::format("{} is null", name));
  require(count > 0, "the number of ranks is not positive");
  for (int i = 0; i < count; ++i) {
    if (handles[i] == nullptr) throw InvalidArgument(fmt::format("one of {} is null", name));
    if (std::find(handles, handles + i, handles[i]) != handles + i)
      throw InvalidArgument(fmt::format("one of {} is given twice", name));
  }
}

/// Throws InvalidArgument unless they are `count` ranks of one communicator, one at least.
inline void require_all(polypath_comm* const* comms, int count) {
  require_handles(comms, count, "comms");
  for (int i = 0; i < count; ++i) {
    // With several nodes, each rank has a communicator of its own below.
    require(comms[0]->nodes != nullptr ||
                comms[i]->communicator->is_same_communicator(*comms[0]->communicator),
            "comms are of several communicators");
  }
}

}  // namespace polypath
