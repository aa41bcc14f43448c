// Times and verifies a test, and reports it.
#pragma once

#include <string>

#include "exchange.hpp"
#include "options.hpp"
#include "support/world.hpp"

namespace mpi_bench {

/// What a test tells of an iteration.
struct Quantity {
  /// Messages that follow one another in an iteration: the result is then the latency of one of
  /// them. 0: the result is the bandwidth of all messages of all ranks together.
  int hops = 0;
};

/// Memory for the largest message and window, of this rank's GPU if the options say so: its context
/// is made current first.
Buffers make_buffers(const World& world, const Options& options, const Flows& flows);

/// For each window and size: the warm-up, the timed iterations, then one iteration whose messages
/// hold random bytes and arrive in poisoned memory, where every byte is compared. Rank 0 prints a
/// table and writes the JSON file. Collective. Returns the exit code: 0, or 1 when a byte was
/// wrong.
int run_test(const World& world, const Options& options, const std::string& name, Quantity quantity,
             Exchange& exchange, Buffers& buffers);

}  // namespace mpi_bench
