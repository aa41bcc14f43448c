#include "options.hpp"

#include <fmt/format.h>

#include <limits>

#include "support/arguments.hpp"
#include "support/sizes.hpp"
#include "support/usage_error.hpp"

namespace mpi_bench {
namespace {

constexpr std::size_t kLarge = std::size_t{1} << 20;
constexpr std::size_t kMaxCount = std::numeric_limits<int>::max();

}  // namespace

int Options::iterations_of(std::size_t bytes) const noexcept {
  return iterations.value_or(bytes < kLarge ? 200 : 20);
}

int Options::warmup_of(std::size_t bytes) const noexcept {
  return warmup.value_or(bytes < kLarge ? 20 : 2);
}

std::optional<Options> read_options(const World& world, int argc, char** argv, bool windows,
                                    const char* what) {
  Options options;
  std::size_t smallest = 1;
  std::size_t largest = std::size_t{4} << 20;
  Arguments arguments;
  arguments.option("--min", "SIZE", "smallest message; sizes double (default 1)",
                   [&](auto name, auto value) { smallest = parse_size(name, value); });
  arguments.option("--max", "SIZE", "largest message (default 4M)",
                   [&](auto name, auto value) { largest = parse_size(name, value); });
  arguments.option("--sizes", "LIST", "instead: sizes such as 64K,1M:1G",
                   [&](auto name, auto value) { options.sizes = parse_sizes(name, value); });
  if (windows) {
    arguments.option("--window", "COUNTS", "messages before waiting, such as 1,4,16 (default 1)",
                     [&](auto name, auto value) {
                       options.windows.clear();
                       for (const auto part : split(value))
                         options.windows.push_back(parse_count(name, part, 1, 1024));
                     });
  }
  arguments.option(
      "--iterations", "N", "timed, of each size (default 200, from 1M on 20)",
      [&](auto name, auto value) { options.iterations = parse_count(name, value, 1, 1 << 30); });
  arguments.option(
      "--warmup", "N", "untimed, before them (default 20, from 1M on 2)",
      [&](auto name, auto value) { options.warmup = parse_count(name, value, 0, 1 << 30); });
  arguments.option("--pattern", "pair|ring", "0 to 1, 2 to 3, ... or each to the next",
                   [&](auto name, auto value) { options.pattern = parse_pattern(name, value); });
  arguments.option("--memory", "gpu|host", "where messages lie (default gpu, one a rank)",
                   [&](auto name, auto value) { options.memory = parse_memory(name, value); });
  arguments.option("--json", "FILE", "also write the results there",
                   [&](auto, auto value) { options.json = value; });
  std::string help;
  if (!arguments.parse(argc, argv, what, help)) {
    if (world.root()) fmt::print("{}", help);
    return std::nullopt;
  }
  if (options.sizes.empty()) {
    if (largest < smallest) throw UsageError("--max is less than --min");
    for (std::size_t size = smallest; size <= largest; size *= 2) options.sizes.push_back(size);
  }
  for (const std::size_t size : options.sizes)
    if (size > kMaxCount)
      throw UsageError(fmt::format("{} bytes: MPI counts up to {}", size, kMaxCount));
  require_ranks(options.pattern, world.size());
  return options;
}

}  // namespace mpi_bench
