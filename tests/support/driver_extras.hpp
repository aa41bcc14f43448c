// Entry points of the driver that the engine does not use, but tests do; and what the simulated one
// tells about itself (polypath_sim.h). Looked up in the library that a table came from.
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

/// The primary context of a simulated GPU fails every call with `result` from now on; CUDA_SUCCESS
/// takes it back.
void fail_context(const CudaDriver& driver, int gpu, CUresult result);

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

/// What a careful program does not do with instantiated graphs on the simulated node, since the
/// last reset_sim_counters().
struct GraphMisuse {
  std::uint64_t disturbed = 0;  ///< changed or destroyed while a launch was under way
  std::uint64_t stale = 0;  ///< launches refused because memory of a node is no longer what it was

  friend bool operator==(const GraphMisuse&, const GraphMisuse&) = default;
};
GraphMisuse graph_misuse(const CudaDriver& driver);
void PrintTo(const GraphMisuse& misuse, std::ostream* out);
void reset_sim_counters(const CudaDriver& driver);

/// Copies of another program over a link of the simulated node, in blocks without pause, until the
/// end of the scope. `from`, `to`: "gpu0" or "host0"; `queued`: blocks at any time.
class ForeignCopies {
 public:
  ForeignCopies(const CudaDriver& driver, const char* from, const char* to, int queued = 4,
                std::uint64_t block_bytes = std::uint64_t{64} << 20);
  ~ForeignCopies() { stop_(id_); }
  ForeignCopies(const ForeignCopies&) = delete;
  ForeignCopies& operator=(const ForeignCopies&) = delete;

  /// Blocks copied so far.
  [[nodiscard]] std::uint64_t blocks() const { return blocks_(id_); }

 private:
  void (*stop_)(int);
  std::uint64_t (*blocks_)(int);
  int id_ = 0;
};

}  // namespace polypath::test
