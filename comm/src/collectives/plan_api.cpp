// The C API of planned collectives (polypath.h).
#include "collectives/collective_profile.hpp"
#include "collectives/plan/collective_json.hpp"
#include "collectives/plan/tuned_plan.hpp"
#include "core/c_boundary.hpp"

using namespace polypath;

namespace {

CollectiveRequest request_from(const Node& node, const polypath_collective_request& args) {
  require(args.op != nullptr, "op of the request is null");
  const int gpus = static_cast<int>(node.gpus.size());
  require(args.ranks >= 0, "ranks is negative");
  if (args.gpus == nullptr && args.ranks > gpus)
    throw InvalidArgument(std::to_string(args.ranks) + " ranks need as many GPUs: " + node.name +
                          " has " + std::to_string(gpus));
  require(args.gpus == nullptr || args.ranks > 0, "gpus are given, but no ranks");
  if (args.bytes > kMaxPlanned)
    throw InvalidArgument(std::to_string(args.bytes) + " bytes are more than a plan is made for, " +
                          std::to_string(kMaxPlanned));
  CollectiveRequest request =
      request_of_bytes(parse_collective_op(args.op),
                       args.type == nullptr ? DataType::float32 : parse_data_type(args.type),
                       args.bytes, args.ranks > 0 ? args.ranks : gpus);
  if (args.gpus != nullptr) request.gpus.assign(args.gpus, args.gpus + args.ranks);
  request.relays = idle_gpus(node, request.gpus);
  if (args.operation != nullptr) request.operation = parse_operator(args.operation);
  if (args.order != nullptr) request.order = parse_sum_order(args.order);
  request.root = args.root;
  request.nodes = args.nodes == 0 ? 1 : args.nodes;
  request.network_gbps = args.network_gbps;
  return request;
}

}  // namespace

polypath_status polypath_plan_collective(polypath_context* context,
                                         const polypath_collective_request* request, char** json) {
  return guarded([&] {
    require(context != nullptr, "context is null");
    require(request != nullptr, "request is null");
    const Node& node = context->context.node();
    CollectiveOptions options;
    if (request->algorithm != nullptr) options.algorithm = parse_algorithm(request->algorithm);
    require(request->max_blocks >= 0, "max_blocks is negative");
    options.limits.blocks = request->max_blocks;
    options.compare = request->compare != 0;
    // A request with a number of blocks asks what the cost model says of it.
    ProfileTable<TunedCollective> tuned;
    if (options.limits.blocks == 0) tuned = context->context.tuned<TunedCollective>();
    give(to_json(
             plan_tuned_collective(node, request_from(node, *request), options, tuned.entries())),
         json);
  });
}
