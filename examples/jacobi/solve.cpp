#include "solve.hpp"

#include <chrono>

namespace jacobi {
namespace {

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Solution solve(Ranks& ranks, const Shape& shape, Field& field, Compute& compute, int iterations,
               int warmup) {
  Solution solution;
  compute.begin(field, shape.rows);
  double begin = 0;
  double computing = 0;
  double communicating = 0;
  for (int iteration = 0; iteration < iterations; ++iteration) {
    if (iteration == warmup) {
      ranks.barrier();
      computing = communicating = 0;
      begin = now_s();
    }
    const double started = now_s();
    solution.residuals.push_back(compute.step(field));
    const double computed = now_s();
    ranks.exchange_halo(field);
    field.swap();
    computing += computed - started;
    communicating += now_s() - computed;
  }
  const double to_us = 1e6 / (iterations - warmup);
  solution.iteration_us = ranks.largest(now_s() - begin) * to_us;
  solution.compute_us = ranks.mean(computing) * to_us;
  solution.communication_us = ranks.mean(communicating) * to_us;
  solution.digest = ranks.sum(compute.digest(field));
  ranks.largest(solution.residuals);
  return solution;
}

}  // namespace jacobi
