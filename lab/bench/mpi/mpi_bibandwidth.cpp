// Bandwidth of both directions at once between GPUs: windows of nonblocking sends and receives.
#include "run_test.hpp"
#include "window_exchange.hpp"

namespace mpi_bench {
namespace {

int bibandwidth(const World& world, int argc, char** argv) {
  const auto options = read_options(world, argc, argv, /*windows=*/true,
                                    "mpi_bibandwidth: MPI_Isend and MPI_Irecv, both ways at once");
  if (!options) return 0;
  const Flows flows = both_ways(options->pattern, world.rank(), world.size());
  Buffers buffers = make_buffers(world, *options, flows);
  WindowExchange exchange(flows, buffers, /*acknowledge=*/false);
  return run_test(world, *options, "mpi_bibandwidth", {}, exchange, buffers);
}

}  // namespace
}  // namespace mpi_bench

int main(int argc, char** argv) {
  return mpi_bench::with_world(argc, argv, mpi_bench::bibandwidth);
}
