// Entry points of the driver that the engine does not use, but tests do; and what the simulated one tells
// about itself (sim/polypath_sim.h). Looked up in the library that a table came from.
#pragma once

#include <cstdint>
#include <iosfwd>

#include "driver/cuda_driver.hpp"

namespace polypath::test {

/// Null where the driver's library has no such symbol.
void* find_in_driver(const CudaDriver& driver, const char* symbol);

/// `symbol` of the driver's library as a function of type `Function*`.
template <typename Function>
Function* driver_function(const CudaDriver& driver, const char* symbol) {
  return reinterpret_cast<Function*>(find_in_driver(driver, symbol));
}

/// Objects that exist now on the simulated node, for leak tests.
struct LiveObjects {
  std::uint64_t contexts = 0;
  std::uint64_t streams = 0;
  std::uint64_t events = 0;
  std::uint64_t allocations = 0;
  std::uint64_t graphs = 0;
  std::uint64_t graph_execs = 0;

  friend bool operator==(const LiveObjects&, const LiveObjects&) = default;
};
LiveObjects live_objects(const CudaDriver& driver);
void PrintTo(const LiveObjects& objects, std::ostream* out);

}  // namespace polypath::test
