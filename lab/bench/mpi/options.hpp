// The options that all tests have.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "pattern.hpp"
#include "support/memory.hpp"
#include "support/world.hpp"

namespace mpi_bench {

struct Options {
  std::vector<std::size_t> sizes;  ///< bytes a message
  std::vector<int> windows = {1};  ///< messages along a flow before the first wait
  std::optional<int> iterations;   ///< timed; default by size
  std::optional<int> warmup;       ///< untimed first; default by size
  Pattern pattern = Pattern::pair;
  MemoryKind memory = MemoryKind::gpu;
  std::string json;  ///< file; empty: none

  /// 20 and 2 from 1 MiB on, 200 and 20 below.
  [[nodiscard]] int iterations_of(std::size_t bytes) const noexcept;
  [[nodiscard]] int warmup_of(std::size_t bytes) const noexcept;
};

/// Reads the command line of a test. Nothing when that was --help, which rank 0 printed.
/// Throws UsageError. `windows`: whether the test has windows.
std::optional<Options> read_options(const World& world, int argc, char** argv, bool windows,
                                    const char* what);

}  // namespace mpi_bench
