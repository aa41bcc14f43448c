// Starts the ranks of a program: the processes that a launcher started, or threads of this one;
// over the backend that a name says.
#pragma once

#include <atomic>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#if defined(UNICONN_WITH_MPI) && UNICONN_WITH_MPI
#include "polypath/uniconn/backend/mpi.hpp"
#endif
#include "arguments.hpp"
#include "gpu.hpp"
#include "polypath/uniconn/backend/any.hpp"

namespace uniconn_example {

/// What a rank works with; `env` is up, with its GPU.
template <uc::BackendLibrary B>
struct Rank {
  uc::Environment<B>& env;
  uc::Communicator<B>& comm;
  const Gpu& gpu;
  const uc::Bootstrap& meeting;
};

/// `threads`: ranks in this process, a GPU each; 0: this process is one of those that its
/// launcher started. Calls `body` on each rank here. What a rank throws is printed, and ends the
/// others by its absence; false then.
template <uc::BackendLibrary B, typename Body>
bool on_ranks(int threads, const Body& body) {
  std::atomic<bool> is_well = true;
  const auto run = [&](uc::Bootstrap bootstrap, int thread) {
    try {
      uc::Environment<B> env(bootstrap);
      env.SetDevice(thread < 0 ? env.NodeRank() : thread);
      const Gpu gpu;
      uc::Communicator<B> comm;
      Rank<B> rank{env, comm, gpu, bootstrap};
      body(rank);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "rank %d: %s\n", bootstrap.rank(), error.what());
      is_well = false;
    }
  };
  if (threads == 0) {
    run(B::bootstrap(0, nullptr), -1);
  } else {
    std::vector<std::jthread> ranks;
    for (const uc::Bootstrap& bootstrap : uc::Bootstrap::threads(threads))
      ranks.emplace_back([&run, bootstrap] { run(bootstrap, bootstrap.rank()); });
  }
  return is_well;
}

/// Calls `body` with the backend of this name, as a std::type_identity. Throws where there is none.
template <typename Body>
bool with_backend(const std::string& name, const Body& body) {
  if (name == "polypath") return body(std::type_identity<uc::PolypathBackend>{});
  if (name == "gpuccl") return body(std::type_identity<uc::GpucclBackend>{});
  if (name == "gpushmem") return body(std::type_identity<uc::GpushmemBackend>{});
  if (name == "any") return body(std::type_identity<uc::AnyBackend>{});
#if UNICONN_ANY_HAS_MPI
  if (name == "mpi") return body(std::type_identity<uc::MPIBackend>{});
  throw std::runtime_error("--backend is polypath, gpuccl, gpushmem, mpi or any");
#else
  throw std::runtime_error(
      "--backend is polypath, gpuccl, gpushmem or any; the programs whose names end with _mpi have "
      "mpi, too");
#endif
}

/// main() of a program whose options, with their defaults, are `known`, "backend" and "threads"
/// among them: calls `body(rank, arguments)` on each rank, over the backend that they name. 1 when
/// a rank threw; 2, and why on stderr, when the program could not begin.
template <typename Body>
int run_program(const char* name, int argc, char** argv, std::map<std::string, std::string> known,
                const Body& body) {
  try {
    const Arguments arguments(argc, argv, std::move(known));
    const auto over = [&]<typename B>(std::type_identity<B>) {
      return on_ranks<B>(arguments.count("threads", 0),
                         [&](Rank<B>& rank) { body(rank, arguments); });
    };
    return with_backend(arguments.text("backend"), over) ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name, error.what());
    return 2;
  }
}

}  // namespace uniconn_example
