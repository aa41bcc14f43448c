// What a collective is asked to do, without addresses: the input of planning. The same on all
// ranks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/collective_types.h"
#include "topology/node.hpp"

namespace polypath {

/// "allreduce", "bfloat16", "sum".
std::string_view to_string(CollectiveOp op) noexcept;
std::string_view to_string(DataType type) noexcept;
std::string_view to_string(Operator operation) noexcept;
std::string_view to_string(SumOrder order) noexcept;
/// The reverse. Throw InvalidArgument, which lists what there is.
CollectiveOp parse_collective_op(std::string_view text);
DataType parse_data_type(std::string_view text);
Operator parse_operator(std::string_view text);
SumOrder parse_sum_order(std::string_view text);

/// The type in which elements are summed: float32 for the half types, else the type itself. Partial
/// sums that travel are of this type, so that there is one rounding.
constexpr DataType accumulator_of(DataType type) noexcept {
  return type == DataType::float16 || type == DataType::bfloat16 ? DataType::float32 : type;
}

/// The ranks of one node that the kernels serve (kernels/collective_args.h).
inline constexpr int kMaxRanksPerNode = 8;

struct CollectiveRequest {
  CollectiveOp op = CollectiveOp::allreduce;
  DataType type = DataType::float32;
  Operator operation = Operator::sum;
  SumOrder order = SumOrder::rank;
  /// Elements, as MPI and NCCL count them: of the message for allreduce, broadcast and reduce; of
  /// what each rank receives (reduce_scatter), gives (all_gather), or gives to each (all_to_all).
  std::uint64_t count = 0;
  std::vector<int> gpus;         ///< of each rank of this node, an index into Node::gpus
  std::vector<int> relays = {};  ///< GPUs that are no ranks, over which a part may go
  int root = 0;                  ///< rank of broadcast and reduce
  int nodes = 1;                 ///< equal nodes; above 1 the plan is a prediction
  double network_gbps = 0;       ///< of each node, one direction; needed when nodes > 1

  /// The number of ranks on this node.
  [[nodiscard]] int ranks() const noexcept { return static_cast<int>(gpus.size()); }
  /// Whether a count stands for one rank's part of the message.
  [[nodiscard]] bool by_parts() const noexcept;
  /// Elements of the whole message: a rank's larger buffer.
  [[nodiscard]] std::uint64_t elements() const noexcept;
  [[nodiscard]] std::uint64_t bytes() const noexcept { return elements() * size_of(type); }
  /// Whether elements become one (allreduce, reduce_scatter, reduce).
  [[nodiscard]] bool reduces() const noexcept;
  /// The type of partial sums. As a tree they are elements.
  [[nodiscard]] DataType partial_type() const noexcept {
    return order == SumOrder::tree ? type : accumulator_of(type);
  }
  /// Whether sums are a tree whose shape shows in the bits.
  [[nodiscard]] bool needs_tree() const noexcept {
    return order == SumOrder::tree && reduces() && depends_on_order(type);
  }
  /// Bytes that count for the bus bandwidth, a byte of the message: 2 (n - 1) / n for allreduce on
  /// n ranks, (n - 1) / n for those by parts, else 1; as nccl-tests defines it.
  [[nodiscard]] double bus_factor() const noexcept;

  friend bool operator==(const CollectiveRequest&, const CollectiveRequest&) = default;
};

/// The request for `bytes` (a rank's larger buffer, rounded up to whole elements of every rank) on
/// all GPUs of the node, or on the first `ranks` of them.
CollectiveRequest request_of_bytes(CollectiveOp op, DataType type, std::uint64_t bytes, int ranks);

/// The GPUs of the node that are no ranks.
std::vector<int> idle_gpus(const Node& node, const std::vector<int>& gpus);

/// Throws InvalidArgument with the reason: no rank, more ranks than collectives take, a GPU that
/// the node lacks or that two ranks share, a root that is no rank, several nodes without a rate, or
/// of another operation than allreduce.
void validate(const Node& node, const CollectiveRequest& request);

}  // namespace polypath
