// What a test found: a table in the columns of the OSU micro-benchmarks, and JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "options.hpp"
#include "run_test.hpp"
#include "support/world.hpp"

namespace mpi_bench {

struct Row {
  std::size_t bytes = 0;  ///< a message
  int window = 1;
  int iterations = 0;
  double seconds = 0;          ///< of an iteration, all ranks
  std::uint64_t messages = 0;  ///< that all ranks receive in an iteration: each was verified
  std::uint64_t wrong = 0;     ///< of them, those with a wrong byte
};

/// Prints on rank 0, and nothing elsewhere; members are collective.
class Report {
 public:
  Report(const World& world, const Options& options, const std::string& name, Quantity quantity);

  /// Prints one line.
  void add(const Row& row);

  /// Writes the file of --json, if there is one:
  /// {"program", "mpi", "ranks", "pattern", "memory",
  ///  "rows": [{"bytes", "window", "iterations", "gbps" or "latency_us", "messages", "verified"}]}
  /// gbps: 1e9 bytes/s, the sum over all ranks. Throws std::runtime_error.
  void write() const;

 private:
  bool root_;
  std::string file_;
  Quantity quantity_;
  nlohmann::ordered_json document_;
};

}  // namespace mpi_bench
