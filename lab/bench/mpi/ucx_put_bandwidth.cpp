// One-way bandwidth of UCX puts between GPUs: windows of puts, each flushed.
#include "run_test.hpp"
#include "ucx_exchange.hpp"

namespace mpi_bench {
namespace {

int put_bandwidth(const World& world, int argc, char** argv) {
  const auto options =
      read_options(world, argc, argv, /*windows=*/true, "ucx_put_bandwidth: ucp_put_nbx, one way");
  if (!options) return 0;
  const Flows flows = one_way(options->pattern, world.rank(), world.size());
  Buffers buffers = make_buffers(world, *options, flows);
  UcxExchange exchange(flows, buffers);
  return run_test(world, *options, "ucx_put_bandwidth", {}, exchange, buffers);
}

}  // namespace
}  // namespace mpi_bench

int main(int argc, char** argv) {
  return mpi_bench::with_world(argc, argv, mpi_bench::put_bandwidth);
}
