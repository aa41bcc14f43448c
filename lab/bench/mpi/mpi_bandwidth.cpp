// One-way bandwidth between GPUs: windows of nonblocking sends, each window acknowledged.
#include "run_test.hpp"
#include "window_exchange.hpp"

namespace mpi_bench {
namespace {

int bandwidth(const World& world, int argc, char** argv) {
  const auto options = read_options(world, argc, argv, /*windows=*/true,
                                    "mpi_bandwidth: MPI_Isend and MPI_Irecv, one way");
  if (!options) return 0;
  const Flows flows = one_way(options->pattern, world.rank(), world.size());
  Buffers buffers = make_buffers(world, *options, flows);
  WindowExchange exchange(flows, buffers, /*acknowledge=*/true);
  return run_test(world, *options, "mpi_bandwidth", {}, exchange, buffers);
}

}  // namespace
}  // namespace mpi_bench

int main(int argc, char** argv) { return mpi_bench::with_world(argc, argv, mpi_bench::bandwidth); }
