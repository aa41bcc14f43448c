// One iteration of a test whose bytes are looked at.
#pragma once

#include <cstdint>

#include "exchange.hpp"

namespace mpi_bench {

/// Messages that this rank received.
struct Verified {
  std::uint64_t messages = 0;
  std::uint64_t wrong = 0;  ///< of them, those with a wrong byte
};

/// Runs one iteration with random contents, different in every message, into memory of which no
/// byte is right before, and compares every byte that this rank received. The first wrong message
/// is described on stderr. Collective.
Verified verify(const World& world, Exchange& exchange, const Layout& layout, Buffers& buffers);

}  // namespace mpi_bench
