// uniconn_ranks [CASE... | -CASE...]: the suite, these cases of it, or all but these, on ranks that
// mpirun or torchrun's variables started: by MPI, by polypath with BACKEND=polypath, or by what
// AnyBackend chooses with BACKEND=any; then rank R has the profile PROFILES.R, where PROFILES is
// set. Each rank prints "rank R: CASE: OK" and what went wrong; of AnyBackend also what went by
// which backend.
#include <cstdio>
#include <cstdlib>
#include <set>

#include "polypath/uniconn/backend/mpi.hpp"
#include "suite.hpp"
// After mpi.hpp: it has MPI, too.
#include "polypath/uniconn/backend/any.hpp"

namespace polypath::test {

template <typename B>
bool run(const std::set<std::string>& names, uc::Environment<B>& env) {
  env.SetDevice(env.NodeRank());
  const Gpu gpu;
  uc::Communicator<B> comm;
  SuiteRank<B> self{env, comm, gpu};
  // What a table may give to MPI waits.
  self.posts_may_wait = std::getenv("PROFILES") != nullptr;
  const bool has_names = !names.empty() && !names.begin()->starts_with('-');
  bool is_well = true;
  for (const SuiteCase<B>& suite_case : suite<B>()) {
    if (names.contains("-" + std::string(suite_case.name))) continue;
    if (has_names && !names.contains(suite_case.name)) continue;
    try {
      suite_case.run(self);
      std::printf("rank %d: %s: OK\n", self.rank(), suite_case.name);
    } catch (const std::exception& error) {
      std::printf("rank %d: %s: FAILED: %s\n", self.rank(), suite_case.name, error.what());
      is_well = false;
      break;  // the others wait for it
    }
    std::fflush(stdout);
  }
  return is_well;
}

}  // namespace polypath::test

int main(int argc, char** argv) {
  using namespace polypath::test;
  const std::set<std::string> names(argv + 1, argv + argc);
  const char* const backend = std::getenv("BACKEND");
  if (const char* const piece = std::getenv("PIECE"))
    uc::detail::mpi_piece = std::strtoull(piece, nullptr, 10);
  try {
    if (backend != nullptr && std::string(backend) == "polypath") {
      MPI_Init(&argc, &argv);
      bool is_well = false;
      {
        uc::Environment<uc::PolypathBackend> env(uc::mpi_bootstrap(MPI_COMM_WORLD));
        is_well = run<uc::PolypathBackend>(names, env);
      }
      if (!is_well) MPI_Abort(MPI_COMM_WORLD, 1);
      MPI_Finalize();
      return 0;
    }
    if (backend != nullptr && std::string(backend) == "any") {
      static_assert(uc::AnyBackend::kHasMpi);
      const char* const profiles = std::getenv("PROFILES");
      const char* const number = std::getenv("OMPI_COMM_WORLD_RANK");
      if (profiles != nullptr && number != nullptr)
        setenv("POLYPATH_PROFILE", (std::string(profiles) + "." + number).c_str(), 1);
      uc::Environment<uc::AnyBackend> env(argc, argv);
      if (!run<uc::AnyBackend>(names, env)) MPI_Abort(MPI_COMM_WORLD, 1);
      std::printf("rank %d: backend: %s\n", env.WorldRank(), env.BackendReason().c_str());
      for (const uc::BackendUse& use : env.BackendUses())
        std::printf("rank %d: %s by %s: %llu\n", env.WorldRank(), use.operation.c_str(),
                    use.backend.c_str(), static_cast<unsigned long long>(use.calls));
      return 0;
    }
    {
      uc::Environment<uc::MPIBackend> env(argc, argv);
      if (!run<uc::MPIBackend>(names, env)) MPI_Abort(MPI_COMM_WORLD, 1);
    }
    // It began MPI, and has ended it.
    int is_over = 0;
    MPI_Finalized(&is_over);
    if (is_over == 0) {
      std::printf("MPI was not finalised\n");
      return 1;
    }
    const std::string message = refusal(POLYPATH_INVALID_ARGUMENT, "after the end",
                                        [] { uc::Environment<uc::MPIBackend> env; });
    if (message.find("cannot begin again") == std::string::npos) return 1;
  } catch (const std::exception& error) {
    std::printf("FAILED: %s\n", error.what());
    return 1;
  }
  return 0;
}
