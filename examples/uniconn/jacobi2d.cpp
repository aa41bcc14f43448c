// jacobi2d: the Jacobi iteration over UNICONN, whose backend an option names. README.md has the
// rest.
#include "jacobi2d.hpp"

#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "arguments.hpp"
#include "ranks.hpp"

namespace uniconn_example {
namespace {

/// The bits of both, to the last.
bool is_same(const JacobiResult& a, const JacobiResult& b) {
  return a.digest == b.digest && a.residuals.size() == b.residuals.size() &&
         std::memcmp(a.residuals.data(), b.residuals.data(), a.residuals.size() * sizeof(float)) ==
             0;
}

template <uc::LaunchMode M, uc::BackendLibrary B>
void run(Rank<B>& rank, const Arguments& arguments) {
  const Grid grid{static_cast<std::uint64_t>(arguments.count("rows", 1)),
                  static_cast<std::uint64_t>(arguments.count("columns", 3))};
  const int iterations = arguments.count("iterations", 1);
  const int warmup = std::min(arguments.count("warmup", 0), iterations - 1);
  const int ranks = rank.comm.GlobalSize();
  if (const auto& how = arguments.text("exchange"); how != "both" && how != "turns")
    throw std::runtime_error("--exchange is both or turns");
  if (grid.rows < static_cast<std::uint64_t>(ranks))
    throw std::runtime_error("--rows is less than there are ranks");
  const auto compute = sweeps(arguments.text("compute"), rank.gpu);
  JacobiResult result;
  {
    Jacobi2d<B, M> solver(rank.gpu, *compute, rank.comm, grid, iterations,
                          arguments.text("exchange") == "turns");
    result = solver.solve(iterations, warmup);
  }
  if (rank.comm.GlobalRank() != 0) return;
  std::string verified = "null";
  if (arguments.text("verify") == "yes") {
    verified = is_same(result, jacobi2d_alone(grid, iterations)) ? "true" : "false";
  }
  std::printf(
      "{\"program\": \"jacobi2d\", \"backend\": \"%s\", \"ranks\": %d, \"mode\": \"%s\", "
      "\"compute\": \"%s\", "
      "\"rows\": %" PRIu64 ", \"columns\": %" PRIu64 ", \"halo_bytes\": %" PRIu64
      ", \"exchange\": \"%s\", \"iterations\": %d, \"iteration_us\": %.3f, \"residual\": %.9g, "
      "\"digest\": \"%016" PRIx64 "\", \"verified\": %s}\n",
      rank.env.BackendName().c_str(), ranks, uc::name_of(M),
      M == uc::LaunchMode::PureHost ? compute->name() : "kernel", grid.rows, grid.columns,
      grid.columns * sizeof(float), arguments.text("exchange").c_str(), iterations,
      result.iteration_us, static_cast<double>(result.residuals.back()), result.digest,
      verified.c_str());
  if (verified == "false") throw std::runtime_error("the result is not that of one rank");
}

}  // namespace
}  // namespace uniconn_example

int main(int argc, char** argv) {
  using namespace uniconn_example;
  return run_program("jacobi2d", argc, argv,
                     {{"backend", "any"},
                      {"threads", "0"},
                      {"rows", "16384"},
                      {"columns", "16384"},
                      {"iterations", "1000"},
                      {"warmup", "100"},
                      {"exchange", "both"},
                      {"compute", "auto"},
                      {"mode", "host"},
                      {"verify", "no"}},
                     []<typename B>(Rank<B>& rank, const Arguments& arguments) {
                       in_mode<B>(arguments.text("mode"),
                                  [&](auto mode) { run<mode()>(rank, arguments); });
                     });
}
