#include "group.hpp"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <string_view>

#include "base/error.hpp"
#include "base/options.hpp"
#include "comm/late_release.hpp"
#include "comm/thread_bootstrap.hpp"
#include "driver/resources.hpp"

namespace polypath::test {

const NodeSource& group_node() {
  static const NodeSource source = [] {
    // As in engine_test.cpp: streams that are held back must not hold others.
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
    return open_node(load_options({}));
  }();
  return source;
}

bool in_virtual_time() {
  const char* const mode = std::getenv("POLYPATH_SIM_MODE");
  return group_node().simulated && (mode == nullptr || std::string_view(mode) == "virtual");
}

int gpus_up_to(int most) {
  try {
    return std::min(most, static_cast<int>(group_node().node.gpus.size()));
  } catch (const NoDevice&) {
    return 0;
  }
}

std::vector<std::string> failures_on_threads(int size, const std::function<void(int)>& body) {
  std::vector<std::string> failures;
  for (const std::exception_ptr& thrown : exceptions_on_rank_threads(size, body)) {
    failures.emplace_back();
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const std::exception& error) {
      failures.back() = error.what();
    }
  }
  return failures;
}

Group::Group(int size, const GroupOptions& options) : ranks_(static_cast<std::size_t>(size)) {
  const NodeSource& source = group_node();
  nodes_.assign(ranks_.size(), source.node);
  const auto exchanges = thread_exchanges(size, options.time_limit);
  on_threads(size, [&](std::size_t at) {
    const int rank = static_cast<int>(at);
    CommunicatorOptions rank_options;
    rank_options.rank = rank;
    rank_options.size = size;
    rank_options.gpu = options.gpus.empty() ? rank : options.gpus.at(at);
    rank_options.exchange = exchanges[at];
#if defined(__SANITIZE_THREAD__)
    rank_options.put_kernel_max_bytes = 0;  // more threads at once than it counts
#endif
    rank_options.time_limit = options.time_limit;
    rank_options.engine = options.engine;
    if (options.alter) options.alter(rank_options);
    if (options.alter_node) options.alter_node(rank, nodes_[at]);
    ranks_[at] = std::make_unique<Communicator>(
        options.driver == nullptr ? source.driver : options.driver, nodes_[at], rank_options);
  });
}

Group::~Group() {
  ranks_.clear();
  wait_for_late_releases();
}

void Group::run(const std::function<void(Communicator&)>& body) {
  on_threads(size(), [&](int rank) {
    Communicator& comm = (*this)[rank];
    const CurrentContext current(comm.driver(), comm.context());
    body(comm);
  });
}

std::vector<std::string> Group::failures(const std::function<void(Communicator&)>& body) {
  return failures_on_threads(size(), [&](int rank) {
    Communicator& comm = (*this)[rank];
    const CurrentContext current(comm.driver(), comm.context());
    body(comm);
  });
}

}  // namespace polypath::test
