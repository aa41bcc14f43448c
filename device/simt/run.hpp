// Runs host builds on this program's own memory, for tests: launches in rows, each row in order, as
// on one stream, all rows at once. A seed says how their threads take turns, how far apart launches
// begin, and how late stores arrive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "simt/machine.hpp"

namespace polypath::simt {

struct RunOptions {
  std::uint64_t seed = 1;
  unsigned max_parts = 4;         ///< as Machine::Options
  unsigned blocks_of_device = 0;  ///< as Launch, of all
  bool whole_lines = false;       ///< as Machine::Options
  /// Where each device's memory lies, for fence_gpu(); what no entry has is private to each device.
  struct Range {
    const void* begin;
    std::size_t bytes;
    int device;
  };
  std::vector<Range> memory{};
  /// Turns of threads; more are taken for a run without end.
  std::uint64_t max_steps = 500'000'000;
  /// Told of each load and store, where it is set.
  std::function<void(std::uintptr_t address, std::size_t bytes, bool writes)> access{};
};

/// Runs all launches to their ends. Returns "" or what went wrong: a fault, or a deadlock, with
/// what each thread waits for. The global timer stands still but when nothing else can happen and
/// a thread reads it: then it moves on in growing steps, so that time limits are met.
std::string run(const std::vector<std::vector<Launch>>& rows, const RunOptions& options = {});

/// A launch of the kernel of that name. Throws std::invalid_argument when there is none, or it has
/// not as many arguments of these sizes.
template <typename... Arguments>
Launch launch(std::string_view kernel, int device, unsigned blocks, unsigned threads,
              const Arguments&... arguments) {
  static_assert((std::is_trivially_copyable_v<Arguments> && ...));
  Launch result;
  result.kernel = find_host_kernel(kernel);
  result.device = device;
  result.blocks = blocks;
  result.threads = threads;
  const auto add = [&result](const void* value, std::size_t bytes) {
    const auto* const begin = static_cast<const std::byte*>(value);
    result.arguments.emplace_back(begin, begin + bytes);
  };
  (add(&arguments, sizeof arguments), ...);
  if (result.kernel == nullptr ||
      result.kernel->parameter_bytes != std::vector<std::size_t>{sizeof arguments...})
    throw std::invalid_argument("no kernel " + std::string(kernel) + " with these parameters");
  return result;
}

}  // namespace polypath::simt
