#include "collectives/plan/collective_json.hpp"

#include "collectives/plan/tuned_collective_json.hpp"

namespace polypath {
namespace {

using nlohmann::json;

json stages_json(const std::vector<CollectiveStage>& stages) {
  json rows = json::array();
  for (const CollectiveStage& stage : stages)
    rows.push_back({{"stage", stage.name},
                    {"moves", stage.moves},
                    {"links", stage.links},
                    {"busiest_gbps", stage.busiest_gbps},
                    {"us", stage.us}});
  return rows;
}

json relays_json(const std::vector<RelayShare>& relays) {
  if (relays.empty()) return nullptr;
  json rows = json::array();
  for (const RelayShare& entry : relays)
    rows.push_back({{"gpu", entry.gpu}, {"gbps", entry.gbps}, {"share", entry.share}});
  return rows;
}

json candidates_json(const std::vector<CollectiveCandidate>& candidates) {
  json rows = json::array();
  for (const CollectiveCandidate& candidate : candidates)
    rows.push_back({{"algorithm", to_string(candidate.algorithm)},
                    {"us", candidate.us > 0 ? json(candidate.us) : json()},
                    {"bus_gbps", candidate.bus_gbps > 0 ? json(candidate.bus_gbps) : json()},
                    {"limit_bus_gbps", candidate.limit_bus_gbps},
                    {"reason", candidate.reason}});
  return rows;
}

/// Times the ring over direct links, of the plan and of every other algorithm that was weighed.
json against_ring_json(const CollectivePlan& plan) {
  double ring = 0;
  for (const CollectiveCandidate& candidate : plan.candidates)
    if (candidate.algorithm == Algorithm::ring) ring = candidate.us;
  if (ring <= 0) return nullptr;
  json times = json::object();
  for (const CollectiveCandidate& candidate : plan.candidates)
    if (candidate.us > 0) times[std::string(to_string(candidate.algorithm))] = ring / candidate.us;
  return times;
}

}  // namespace

json to_json(const CollectivePlan& plan) {
  const CollectiveRequest& request = plan.request;
  json kernel;
  if (plan.kernel)
    kernel = {{"blocks", plan.kernel->blocks},
              {"slot_bytes", plan.kernel->slot_bytes},
              {"lag", plan.kernel->lag},
              {"stages", plan.kernel->stages}};
  const bool islands = plan.algorithm == Algorithm::hierarchical;
  return {
      {"op", to_string(request.op)},
      {"type", to_string(request.type)},
      {"operator", request.reduces() ? json(to_string(request.operation)) : json()},
      {"bytes", request.bytes()},
      {"count", request.count},
      {"gpus", request.gpus},
      {"root", request.root},
      {"nodes", request.nodes},
      {"network_gbps", request.nodes > 1 ? json(request.network_gbps) : json()},
      {"algorithm", to_string(plan.algorithm)},
      {"reason", plan.reason},
      {"islands", islands ? json(plan.islands) : json()},
      {"lanes", islands ? json(plan.lanes) : json()},
      {"ring", plan.algorithm == Algorithm::ring ? json(plan.ring) : json()},
      {"order", request.reduces() ? json(plan.order) : json()},
      {"rank_order", plan.rank_order},
      {"sum_order", to_string(request.order)},
      {"kernel", std::move(kernel)},
      {"host_bytes",
       plan.algorithm == Algorithm::mixed ? json(plan.host_count * size_of(request.type)) : json()},
      {"relays", relays_json(plan.relays)},
      {"chunks", plan.chunks},
      {"chunk_bytes", plan.chunk_bytes},
      {"stages", stages_json(plan.stages)},
      {"predicted_us", plan.predicted_us},
      {"bus_gbps", plan.bus_gbps},
      {"limit_bus_gbps", plan.limit_bus_gbps},
      {"link_limit_bus_gbps", plan.link_limit_bus_gbps},
      {"unproven", plan.unproven},
      {"candidates", candidates_json(plan.candidates)},
      {"times_ring", against_ring_json(plan)},
      {"published_us", plan.published_us > 0 ? json(plan.published_us) : json()},
      {"tuned", plan.tuned ? to_json(*plan.tuned) : json()}};
}

}  // namespace polypath
