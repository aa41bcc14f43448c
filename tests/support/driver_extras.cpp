#include "support/driver_extras.hpp"

#include <dlfcn.h>

#include <ostream>
#include <stdexcept>

#include "base/units.hpp"

namespace polypath::test {

void* find_in_driver(const CudaDriver& driver, const char* symbol) {
  void* const library = dlopen(driver.library.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) throw std::runtime_error(driver.library + " is not loaded");
  void* const function = dlsym(library, symbol);
  dlclose(library);
  return function;
}

namespace {

std::uint64_t count(const CudaDriver& driver, const char* symbol) {
  return driver_function<std::uint64_t()>(driver, symbol)();
}

}  // namespace

void fail_context(const CudaDriver& driver, int gpu, CUresult result) {
  driver_function<void(int, int)>(driver, "polypath_sim_fail_context")(gpu,
                                                                       static_cast<int>(result));
}

LiveObjects live_objects(const CudaDriver& driver) {
  return {
      count(driver, "polypath_sim_live_contexts"), count(driver, "polypath_sim_live_streams"),
      count(driver, "polypath_sim_live_events"),   count(driver, "polypath_sim_live_allocations"),
      count(driver, "polypath_sim_live_graphs"),   count(driver, "polypath_sim_live_graph_execs")};
}

GraphMisuse graph_misuse(const CudaDriver& driver) {
  return {count(driver, "polypath_sim_graphs_modified_in_flight"),
          count(driver, "polypath_sim_stale_graph_launches")};
}

void PrintTo(const GraphMisuse& misuse, std::ostream* out) {
  *out << misuse.disturbed << " graphs disturbed in flight, " << misuse.stale << " stale launches";
}

void reset_sim_counters(const CudaDriver& driver) {
  driver_function<void()>(driver, "polypath_sim_reset_counters")();
}

void PrintTo(const LiveObjects& objects, std::ostream* out) {
  *out << objects.contexts << " contexts, " << objects.streams << " streams, " << objects.events
       << " events, " << objects.allocations << " allocations, " << objects.graphs << " graphs, "
       << objects.graph_execs << " instantiated graphs";
}

ForeignCopies::ForeignCopies(const CudaDriver& driver, const char* from, const char* to, int queued,
                             std::uint64_t block_bytes)
    : stop_(driver_function<void(int)>(driver, "polypath_sim_traffic_stop")),
      blocks_(driver_function<std::uint64_t(int)>(driver, "polypath_sim_traffic_blocks")) {
  const auto start =
      driver_function<int(const char*, const char*, std::uint64_t, int, double, double)>(
          driver, "polypath_sim_traffic_start");
  id_ = start(from, to, block_bytes, queued, 0, 0);
  if (id_ == 0) throw std::runtime_error("the simulated node has no such link");
}

}  // namespace polypath::test
