// The Jacobi iteration on a two-dimensional grid of floats, one rank a GPU. An ordinary MPI
// program: the halos are exchanged by MPI_Sendrecv on GPU memory. With --threads its ranks are
// threads, and MPI is not used.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "solve.hpp"
#include "support/arguments.hpp"
#include "support/cuda.hpp"
#include "support/sizes.hpp"
#include "support/usage_error.hpp"
#include "support/world.hpp"

namespace jacobi {
namespace {

using mpi_bench::MemoryKind;
using mpi_bench::UsageError;
using mpi_bench::World;

struct Options {
  Shape shape;
  int iterations = 1000;
  int warmup = 10;
  MemoryKind memory = MemoryKind::gpu;
  bool on_host = false;
  int threads = 0;  ///< 0: the processes of MPI
  std::string json;
};

constexpr int kRows = 32;

/// Nothing when that was --help, whose text is then in `help`. Throws UsageError.
std::optional<Options> read_options(int argc, char** argv, std::string& help) {
  Options options;
  int power = 23;
  int rows = kRows;
  std::optional<int> columns;
  mpi_bench::Arguments arguments;
  const auto count = [&](int& into, int least, int most) {
    return [&into, least, most](auto name, auto value) {
      into = mpi_bench::parse_count(name, value, least, most);
    };
  };
  arguments.option("--size", "K", "8 x 2^K elements: 32 rows of 2^(K-2) (default 23)",
                   count(power, 5, 32));
  arguments.option("--rows", "N", "rows of the grid, at least as many as ranks (default 32)",
                   count(rows, 1, 1 << 30));
  arguments.option(
      "--columns", "N", "columns, instead of those of --size",
      [&](auto name, auto value) { columns = mpi_bench::parse_count(name, value, 3, 1 << 30); });
  arguments.option("--iterations", "N", "in all (default 1000)",
                   count(options.iterations, 1, 1 << 24));
  arguments.option("--warmup", "N", "the first of them, not timed (default 10)",
                   count(options.warmup, 0, 1 << 24));
  arguments.option(
      "--memory", "gpu|host", "where the grid lies (default gpu)",
      [&](auto name, auto value) { options.memory = mpi_bench::parse_memory(name, value); });
  arguments.option("--compute", "gpu|host", "where it is computed (default gpu, if that can)",
                   [&](auto name, auto value) {
                     options.on_host = mpi_bench::parse_memory(name, value) == MemoryKind::host;
                   });
  arguments.option("--threads", "N", "N ranks as threads of one process, without MPI",
                   count(options.threads, 1, 64));
  arguments.option("--json", "FILE", "also write the results there",
                   [&](auto, auto value) { options.json = value; });
  if (!arguments.parse(argc, argv, "jacobi: a 2-D Jacobi solver on GPUs, ranks in a ring", help))
    return std::nullopt;
  options.shape = {
      .rows = static_cast<std::uint64_t>(rows),
      .columns = columns ? static_cast<std::uint64_t>(*columns) : std::uint64_t{1} << (power - 2)};
  if (options.threads > 0 && options.memory == MemoryKind::host)
    throw UsageError("--threads needs --memory gpu");
  if (options.warmup >= options.iterations)
    throw UsageError(fmt::format("--warmup {} leaves none of {} iterations to time", options.warmup,
                                 options.iterations));
  return options;
}

/// Throws UsageError.
void require_rows(const Options& options, int ranks) {
  if (options.shape.rows < static_cast<std::uint64_t>(ranks))
    throw UsageError(fmt::format("{} rows are not enough for {} ranks", options.shape.rows, ranks));
}

/// Rank 0: the convergence at iterations 1, 2, 4, ... and the last, then where the time went.
void print(const Ranks& ranks, const Options& options, const Compute& compute,
           const Solution& solution) {
  const Shape& shape = options.shape;
  fmt::print("# jacobi: {} ranks, {} x {} floats, halo rows of {} bytes, computed on the {}, {}\n",
             ranks.size(), shape.rows, shape.columns, shape.columns * sizeof(float), compute.name(),
             ranks.name());
  fmt::print("{:<12}{:>16}\n", "# Iteration", "Residual");
  const std::size_t last = solution.residuals.size();
  for (std::size_t i = 1; i <= last; i = i < last && i * 2 > last ? last : i * 2)
    fmt::print("{:<12}{:>16.9g}\n", i, solution.residuals[i - 1]);
  fmt::print("# digest of the grid {:016x}\n", solution.digest);
  fmt::print("{:<12}{:>16}{:>20}\n{:<12.1f}{:>16.1f}{:>20.1f}\n", "# us each", "Compute",
             "Communication", solution.iteration_us, solution.compute_us,
             solution.communication_us);
}

/// {"program", "mpi", "ranks", "memory", "compute", "rows", "columns", "halo_bytes", "iterations",
/// "warmup",
///  "iteration_us", "compute_us", "communication_us", "residuals", "digest"}
void write(const Ranks& ranks, const Options& options, const Compute& compute,
           const Solution& solution) {
  const nlohmann::ordered_json document = {
      {"program", "jacobi"},
      {"mpi", ranks.name()},
      {"ranks", ranks.size()},
      {"memory", options.memory == MemoryKind::gpu ? "gpu" : "host"},
      {"compute", compute.name()},
      {"rows", options.shape.rows},
      {"columns", options.shape.columns},
      {"halo_bytes", options.shape.columns * sizeof(float)},
      {"iterations", options.iterations},
      {"warmup", options.warmup},
      {"iteration_us", solution.iteration_us},
      {"compute_us", solution.compute_us},
      {"communication_us", solution.communication_us},
      {"residuals", solution.residuals},
      {"digest", fmt::format("{:016x}", solution.digest)}};
  std::ofstream out(options.json);
  out << document.dump(1) << '\n';
  if (!out.flush()) throw std::runtime_error("cannot write " + options.json);
}

int run(Ranks& ranks, const Options& options) {
  std::unique_ptr<Compute> compute;
  if (options.memory == MemoryKind::gpu) {
    mpi_bench::use_gpu(ranks.gpu());
    if (!options.on_host) compute = gpu_compute();
  }
  if (compute == nullptr) compute = host_compute();
  Field field(options.memory, options.shape, ranks.rank(), ranks.size());
  const Solution solution =
      solve(ranks, options.shape, field, *compute, options.iterations, options.warmup);
  if (ranks.rank() != 0) return 0;
  print(ranks, options, *compute, solution);
  if (!options.json.empty()) write(ranks, options, *compute, solution);
  return 0;
}

int run_processes(const World& world, int argc, char** argv) {
  std::string help;
  const auto options = read_options(argc, argv, help);
  if (!options) {
    if (world.root()) fmt::print("{}", help);
    return 0;
  }
  require_rows(*options, world.size());
  return run(*mpi_ranks(world), *options);
}

int run_threads(int argc, char** argv) {
  try {
    std::string help;
    const auto options = read_options(argc, argv, help);
    if (!options) {
      fmt::print("{}", help);
      return 0;
    }
    require_rows(*options, options->threads);
    return with_threads(options->threads, [&](Ranks& ranks) { return run(ranks, *options); });
  } catch (const UsageError& error) {
    fmt::print(stderr, "jacobi: {}\n", error.what());
    return 2;
  }
}

/// Asked before MPI starts, which would want its launcher.
bool wants_threads(int argc, char** argv) {
  return std::any_of(argv + 1, argv + argc, [](const char* argument) {
    return std::string_view(argument).starts_with("--threads");
  });
}

}  // namespace
}  // namespace jacobi

int main(int argc, char** argv) {
  if (jacobi::wants_threads(argc, argv)) return jacobi::run_threads(argc, argv);
  return mpi_bench::with_world(argc, argv, jacobi::run_processes);
}
