#include "support/driver_extras.hpp"

#include <dlfcn.h>

#include <ostream>
#include <stdexcept>

namespace polypath::test {

void* find_in_driver(const CudaDriver& driver, const char* symbol) {
  void* const library = dlopen(driver.library.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) throw std::runtime_error(driver.library + " is not loaded");
  void* const found = dlsym(library, symbol);
  dlclose(library);
  return found;
}

LiveObjects live_objects(const CudaDriver& driver) {
  const auto count = [&](const char* symbol) {
    return driver_function<std::uint64_t()>(driver, symbol)();
  };
  return {count("polypath_sim_live_contexts"), count("polypath_sim_live_streams"),
          count("polypath_sim_live_events"),   count("polypath_sim_live_allocations"),
          count("polypath_sim_live_graphs"),   count("polypath_sim_live_graph_execs")};
}

void PrintTo(const LiveObjects& objects, std::ostream* out) {
  *out << objects.contexts << " contexts, " << objects.streams << " streams, " << objects.events
       << " events, " << objects.allocations << " allocations, " << objects.graphs << " graphs, "
       << objects.graph_execs << " instantiated graphs";
}

}  // namespace polypath::test
