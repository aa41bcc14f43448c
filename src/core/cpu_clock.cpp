#include "core/cpu_clock.hpp"

#include "driver/library.hpp"

namespace polypath {
namespace {

/// By name, as the simulated driver itself: on hardware no driver has it (sim/polypath_sim.h).
constexpr const char* kVirtualClock = "polypath_sim_clock_us";

}  // namespace

ClockFunction cpu_clock(const NodeSource& source) {
  if (!source.simulated) return steady_clock_us;
  void* const library = open_library(source.driver->library, nullptr);
  if (library == nullptr) return steady_clock_us;
  auto* const clock = find_symbol<double (*)()>(library, kVirtualClock);
  return clock != nullptr ? ClockFunction(clock) : ClockFunction(steady_clock_us);
}

}  // namespace polypath
