#include "collectives/plan/request.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <span>

#include "base/error.hpp"
#include "base/parse_enum.hpp"

namespace polypath {
namespace {

constexpr std::array kOps{CollectiveOp::allreduce,  CollectiveOp::reduce_scatter,
                          CollectiveOp::all_gather, CollectiveOp::broadcast,
                          CollectiveOp::reduce,     CollectiveOp::all_to_all};
constexpr std::array kTypes{
    DataType::int8,   DataType::uint8,   DataType::int32,    DataType::uint32,  DataType::int64,
    DataType::uint64, DataType::float16, DataType::bfloat16, DataType::float32, DataType::float64};
constexpr std::array kOperators{Operator::sum, Operator::product, Operator::min, Operator::max,
                                Operator::avg};

}  // namespace

std::string_view to_string(CollectiveOp op) noexcept {
  switch (op) {
    case CollectiveOp::allreduce: return "allreduce";
    case CollectiveOp::reduce_scatter: return "reduce_scatter";
    case CollectiveOp::all_gather: return "all_gather";
    case CollectiveOp::broadcast: return "broadcast";
    case CollectiveOp::reduce: return "reduce";
    case CollectiveOp::all_to_all: return "all_to_all";
  }
  return "?";
}

std::string_view to_string(DataType type) noexcept {
  switch (type) {
    case DataType::int8: return "int8";
    case DataType::uint8: return "uint8";
    case DataType::int32: return "int32";
    case DataType::uint32: return "uint32";
    case DataType::int64: return "int64";
    case DataType::uint64: return "uint64";
    case DataType::float16: return "float16";
    case DataType::bfloat16: return "bfloat16";
    case DataType::float32: return "float32";
    case DataType::float64: return "float64";
  }
  return "?";
}

std::string_view to_string(Operator operation) noexcept {
  switch (operation) {
    case Operator::sum: return "sum";
    case Operator::product: return "product";
    case Operator::min: return "min";
    case Operator::max: return "max";
    case Operator::avg: return "avg";
  }
  return "?";
}

std::string_view to_string(SumOrder order) noexcept {
  switch (order) {
    case SumOrder::rank: return "rank";
    case SumOrder::tree: return "tree";
  }
  return "?";
}

CollectiveOp parse_collective_op(std::string_view text) {
  return parse_enum<CollectiveOp>(text, "collective", kOps);
}

DataType parse_data_type(std::string_view text) {
  return parse_enum<DataType>(text, "type", kTypes);
}

Operator parse_operator(std::string_view text) {
  return parse_enum<Operator>(text, "operator", kOperators);
}

SumOrder parse_sum_order(std::string_view text) {
  return parse_enum<SumOrder>(text, "order", std::array{SumOrder::rank, SumOrder::tree});
}

bool CollectiveRequest::by_parts() const noexcept {
  switch (op) {
    case CollectiveOp::reduce_scatter:
    case CollectiveOp::all_gather:
    case CollectiveOp::all_to_all: return true;
    case CollectiveOp::allreduce:
    case CollectiveOp::broadcast:
    case CollectiveOp::reduce: return false;
  }
  return false;
}

std::uint64_t CollectiveRequest::elements() const noexcept {
  return by_parts() ? count * gpus.size() : count;
}

bool CollectiveRequest::reduces() const noexcept {
  switch (op) {
    case CollectiveOp::allreduce:
    case CollectiveOp::reduce_scatter:
    case CollectiveOp::reduce: return true;
    case CollectiveOp::all_gather:
    case CollectiveOp::broadcast:
    case CollectiveOp::all_to_all: return false;
  }
  return false;
}

double CollectiveRequest::bus_factor() const noexcept {
  const auto all = static_cast<double>(ranks() * nodes);
  if (op == CollectiveOp::allreduce) return 2 * (all - 1) / all;
  return by_parts() ? (all - 1) / all : 1;
}

CollectiveRequest request_of_bytes(CollectiveOp op, DataType type, std::uint64_t bytes, int ranks) {
  CollectiveRequest request;
  request.op = op;
  request.type = type;
  for (int rank = 0; rank < ranks; ++rank) request.gpus.push_back(rank);
  const std::uint64_t unit =
      size_of(type) * (request.by_parts() ? static_cast<std::uint64_t>(ranks) : 1);
  request.count = unit == 0 ? 0 : bytes / unit + (bytes % unit != 0 ? 1 : 0);
  return request;
}

std::vector<int> idle_gpus(const Node& node, const std::vector<int>& gpus) {
  std::vector<int> idle;
  for (int gpu = 0; gpu < static_cast<int>(node.gpus.size()); ++gpu)
    if (std::ranges::find(gpus, gpu) == gpus.end()) idle.push_back(gpu);
  return idle;
}

void validate(const Node& node, const CollectiveRequest& request) {
  if (request.gpus.empty()) throw InvalidArgument("a collective needs at least one rank");
  if (request.ranks() > kMaxRanksPerNode)
    throw InvalidArgument(
        fmt::format("collectives take up to {0} ranks of a node, not {1}: --ranks {0}",
                    kMaxRanksPerNode, request.ranks()));
  std::vector<bool> taken(node.gpus.size());
  for (const int gpu : request.gpus) {
    if (gpu < 0 || gpu >= static_cast<int>(node.gpus.size()))
      throw InvalidArgument(
          fmt::format("there is no gpu{} on {}: it has {}", gpu, node.name, node.gpus.size()));
    if (taken[static_cast<std::size_t>(gpu)])
      throw InvalidArgument(fmt::format("two ranks share gpu{}: each needs its own", gpu));
    taken[static_cast<std::size_t>(gpu)] = true;
  }
  for (const int gpu : request.relays)
    if (gpu < 0 || gpu >= static_cast<int>(node.gpus.size()) ||
        taken[static_cast<std::size_t>(gpu)])
      throw InvalidArgument(fmt::format("gpu{} is no idle GPU of {}", gpu, node.name));
  if (request.root < 0 || request.root >= request.ranks())
    throw InvalidArgument(fmt::format("there is no rank {} to be the root: 0 to {}", request.root,
                                      request.ranks() - 1));
  if (request.nodes < 1) throw InvalidArgument("nodes must be at least 1");
  if (request.nodes > 1 && request.op != CollectiveOp::allreduce)
    throw InvalidArgument(fmt::format("{} is planned on one node only", to_string(request.op)));
  if (request.nodes > 1 && !(request.network_gbps > 0))
    throw InvalidArgument("several nodes need the rate of the network between them, in GB/s");
}

}  // namespace polypath
