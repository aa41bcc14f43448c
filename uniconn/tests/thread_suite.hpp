// Runs cases of the suite on ranks that are threads of this process.
#pragma once

#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "suite.hpp"

namespace polypath::test {

/// GPUs of this node; 0: none.
inline int gpus() {
  try {
    const auto engine = uc::detail::engine();
    int count = 0;
    uc::detail::Cuda(engine.get()).device_count(&count);
    return count;
  } catch (const polypath::error&) {
    return 0;
  }
}

/// Calls `body` on each rank, with a GPU each. What each rank threw, as text.
template <typename B>
std::vector<std::string> on_ranks(int size, const std::function<void(SuiteRank<B>&)>& body) {
  const auto bootstraps = uc::Bootstrap::threads(size);
  std::vector<std::string> failures(static_cast<std::size_t>(size));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      const auto at = static_cast<std::size_t>(rank);
      try {
        uc::Environment<B> env(bootstraps[at]);
        env.SetDevice(rank);
        const Gpu gpu;
        uc::Communicator<B> comm;
        SuiteRank<B> self{env, comm, gpu};
        body(self);
      } catch (const std::exception& error) {
        failures[at] = "rank " + std::to_string(rank) + ": " + error.what();
      }
    });
  threads.clear();
  return failures;
}

}  // namespace polypath::test
