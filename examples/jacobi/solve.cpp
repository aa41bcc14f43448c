#include "solve.hpp"

#include <mpi.h>

#include "halo.hpp"

namespace jacobi {

Solution solve(const mpi_bench::World& world, const Shape& shape, Field& field, Compute& compute,
               int iterations, int warmup) {
  Solution solution;
  compute.begin(field, shape.rows);
  double begin = 0;
  double computing = 0;
  double communicating = 0;
  for (int iteration = 0; iteration < iterations; ++iteration) {
    if (iteration == warmup) {
      world.barrier();
      computing = communicating = 0;
      begin = MPI_Wtime();
    }
    const double started = MPI_Wtime();
    solution.residuals.push_back(compute.step(field));
    const double computed = MPI_Wtime();
    exchange_halo(field, world.rank(), world.size());
    field.swap();
    computing += computed - started;
    communicating += MPI_Wtime() - computed;
  }
  const double to_us = 1e6 / (iterations - warmup);
  solution.iteration_us = world.largest(MPI_Wtime() - begin) * to_us;
  solution.compute_us = world.mean(computing) * to_us;
  solution.communication_us = world.mean(communicating) * to_us;
  solution.digest = world.sum(compute.digest(field));
  MPI_Allreduce(MPI_IN_PLACE, solution.residuals.data(), iterations, MPI_FLOAT, MPI_MAX,
                MPI_COMM_WORLD);
  return solution;
}

}  // namespace jacobi
