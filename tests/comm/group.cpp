#include "group.hpp"

#include <cstdlib>
#include <exception>
#include <thread>

#include "base/options.hpp"
#include "comm/thread_exchange.hpp"
#include "tune/resources.hpp"

namespace polypath::test {
namespace {

std::vector<std::exception_ptr> run_all(int size, const std::function<void(int)>& body) {
  std::vector<std::exception_ptr> thrown(static_cast<std::size_t>(size));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (...) {
        thrown[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  threads.clear();
  return thrown;
}

}  // namespace

const NodeSource& group_node() {
  static const NodeSource source = [] {
    // As in engine_test.cpp: streams that are held back must not hold others.
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
    return open_node(load_options({}));
  }();
  return source;
}

void on_threads(int size, const std::function<void(int)>& body) {
  for (const std::exception_ptr& thrown : run_all(size, body))
    if (thrown) std::rethrow_exception(thrown);
}

std::vector<std::string> failures_on_threads(int size, const std::function<void(int)>& body) {
  std::vector<std::string> failures;
  for (const std::exception_ptr& thrown : run_all(size, body)) {
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
  const auto exchanges = thread_exchanges(size, options.time_limit);
  on_threads(size, [&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    CommunicatorOptions its;
    its.rank = rank;
    its.size = size;
    its.gpu = options.gpus.empty() ? rank : options.gpus.at(at);
    its.exchange = exchanges[at];
    its.time_limit = options.time_limit;
    its.engine = options.engine;
    if (options.alter) options.alter(its);
    ranks_[at] = std::make_unique<Communicator>(
        options.driver == nullptr ? source.driver : options.driver, source.node, its);
  });
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
