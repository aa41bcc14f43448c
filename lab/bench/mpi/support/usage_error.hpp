// Where bad arguments end.
#pragma once

#include <stdexcept>

namespace mpi_bench {

/// Arguments that are not usable: every rank throws it alike, and rank 0 says why.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace mpi_bench
