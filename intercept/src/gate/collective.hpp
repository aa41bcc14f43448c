// The collectives that interceptors offload.
#pragma once

#include <cstddef>
#include <cstdint>

#include "polypath/offload.h"

namespace polypath::gate {

enum class Operation : std::uint8_t {
  all_reduce = POLYPATH_OFFLOAD_ALL_REDUCE,
  reduce_scatter = POLYPATH_OFFLOAD_REDUCE_SCATTER,
  reduce = POLYPATH_OFFLOAD_REDUCE,
  all_gather = POLYPATH_OFFLOAD_ALL_GATHER,
  broadcast = POLYPATH_OFFLOAD_BROADCAST,
  all_to_all = POLYPATH_OFFLOAD_ALL_TO_ALL,
};
inline constexpr std::size_t kOperationCount = POLYPATH_OFFLOAD_ALL_TO_ALL + 1;

constexpr bool combines(Operation operation) noexcept { return operation <= Operation::reduce; }
constexpr polypath_offload_op op_of(Operation operation) noexcept {
  return static_cast<polypath_offload_op>(operation);
}

}  // namespace polypath::gate
