#include "core/graph_phases_json.hpp"

#include "base/error.hpp"
#include "core/cpu_clock.hpp"

namespace polypath {

using nlohmann::json;

json graph_phases_json(Context& context, const GraphPhasesRequest& request) {
  if (context.source().emulated_mesh_gbps > 0)
    throw InvalidArgument(
        "the phases of a graph are those of the driver's own copies: not measured on an emulated "
        "mesh");
  const GraphPhases phases = measure_graph_phases(
      context.driver(), context.node(), context.devices(), request, cpu_clock(context.source()));
  return {{"bytes", request.bytes},
          {"nodes", request.nodes},
          {"via", to_string(phases.via)},
          {"create_us", phases.create_us},
          {"construct_us", phases.construct_us},
          {"instantiate_us", phases.instantiate_us},
          {"first_launch_us", phases.first_launch_us},
          {"launch_us", phases.launch_us},
          {"patch_us", phases.patch_us},
          {"destroy_us", phases.destroy_us},
          {"first_latency_us", phases.first_latency_us},
          {"latency_us", phases.latency_us},
          {"patched_latency_us", phases.patched_latency_us},
          {"stream_issue_us", phases.stream_issue_us},
          {"stream_latency_us", phases.stream_latency_us},
          {"gpu_bytes", phases.gpu_bytes ? json(*phases.gpu_bytes) : json()},
          {"verified", true}};
}

}  // namespace polypath
