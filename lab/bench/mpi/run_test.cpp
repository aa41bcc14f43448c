#include "run_test.hpp"

#include <algorithm>

#include "report.hpp"
#include "support/cuda.hpp"
#include "verify.hpp"

namespace mpi_bench {
namespace {

/// Seconds of an iteration, of the rank that took longest.
double time(const World& world, Exchange& exchange, const Layout& layout, int warmup,
            int iterations) {
  for (int i = 0; i < warmup; ++i) exchange.run(layout);
  world.barrier();
  const double begin = MPI_Wtime();
  for (int i = 0; i < iterations; ++i) exchange.run(layout);
  return world.largest(MPI_Wtime() - begin) / iterations;
}

}  // namespace

Buffers make_buffers(const World& world, const Options& options, const Flows& flows) {
  if (options.memory == MemoryKind::gpu) use_gpu(world.local_rank());
  const Layout largest(*std::max_element(options.sizes.begin(), options.sizes.end()),
                       *std::max_element(options.windows.begin(), options.windows.end()));
  return {.source = {options.memory, largest.total(flows.to.size())},
          .sink = {options.memory, largest.total(flows.from.size())}};
}

int run_test(const World& world, const Options& options, const std::string& name, Quantity quantity,
             Exchange& exchange, Buffers& buffers) {
  Report report(world, options, name, quantity);
  bool right = true;
  for (const int window : options.windows) {
    for (const std::size_t bytes : options.sizes) {
      const Layout layout(bytes, window);
      Row row{.bytes = bytes, .window = window, .iterations = options.iterations_of(bytes)};
      row.seconds = time(world, exchange, layout, options.warmup_of(bytes), row.iterations);
      const Verified verified = verify(world, exchange, layout, buffers);
      row.messages = world.sum(verified.messages);
      row.wrong = world.sum(verified.wrong);
      right = right && row.wrong == 0;
      report.add(row);
    }
  }
  report.write();
  return right ? 0 : 1;
}

}  // namespace mpi_bench
