// cg: conjugate gradients over UNICONN, whose backend an option names. README.md has the rest.
#include "cg.hpp"

#include <cstdio>

#include "arguments.hpp"
#include "ranks.hpp"

namespace uniconn_example {
namespace {

template <uc::LaunchMode M, uc::BackendLibrary B>
void run(Rank<B>& rank, const Arguments& arguments) {
  const Brick brick = uniconn_example::brick(arguments.text("matrix"));
  const int iterations = arguments.count("iterations", 1);
  const int ranks = rank.comm.GlobalSize();
  const RowParts parts(brick.rows(), ranks);
  const int own = rank.comm.GlobalRank();
  const Rows rows = rows_of(brick, parts.first(own), parts.count(own));
  const auto steps = cg_steps(arguments.text("compute"), rank.gpu, brick, rows);
  CgResult result;
  {
    ConjugateGradients<B, M> solver(rank.gpu, *steps, rank.comm, brick, rows, iterations);
    result = solver.solve(iterations);
  }
  if (own != 0) return;
  const double begun = result.residuals.front();
  // What is left of b - A x, to the error of sums in double precision.
  const bool is_right = result.true_residual <= 2 * result.residuals.back() + 1e-12 * begun;
  std::printf(
      "{\"program\": \"cg\", \"backend\": \"%s\", \"ranks\": %d, \"mode\": \"%s\", \"compute\": "
      "\"%s\", \"matrix\": \"%s\", \"rows\": %zu, \"iterations\": %d, \"iteration_us\": %.3f, "
      "\"residual\": %.17g, "
      "\"relative_residual\": %.3g, \"true_residual\": %.3g, \"verified\": %s, \"residuals\": [",
      rank.env.BackendName().c_str(), ranks, uc::name_of(M),
      M == uc::LaunchMode::PureHost ? steps->name() : "kernel", brick.name.c_str(),
      static_cast<std::size_t>(brick.rows()), iterations, result.iteration_us,
      result.residuals.back(), result.residuals.back() / begun, result.true_residual,
      is_right ? "true" : "false");
  for (std::size_t i = 0; i < result.residuals.size(); ++i)
    std::printf("%s%.17g", i == 0 ? "" : ", ", result.residuals[i]);
  std::printf("]}\n");
  if (!is_right) throw std::runtime_error("x is not the solution that the residuals promise");
}

}  // namespace
}  // namespace uniconn_example

int main(int argc, char** argv) {
  using namespace uniconn_example;
  return run_program("cg", argc, argv,
                     {{"backend", "any"},
                      {"threads", "0"},
                      {"matrix", "serena-like"},
                      {"iterations", "1000"},
                      {"compute", "auto"},
                      {"mode", "host"}},
                     []<typename B>(Rank<B>& rank, const Arguments& arguments) {
                       in_mode<B>(arguments.text("mode"),
                                  [&](auto mode) { run<mode()>(rank, arguments); });
                     });
}
