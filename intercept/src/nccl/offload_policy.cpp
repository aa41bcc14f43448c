#include "nccl/offload_policy.hpp"

#include <algorithm>
#include <bit>

#include "polypath/comm.h"

namespace polypath::nccl {
namespace {

constexpr int kNone = -1;
constexpr int kTypes = 10;  // those beyond it are of 8 bits, and newer
constexpr int kType[kTypes] = {
    POLYPATH_INT8,   POLYPATH_UINT8,   POLYPATH_INT32,   POLYPATH_UINT32,  POLYPATH_INT64,
    POLYPATH_UINT64, POLYPATH_FLOAT16, POLYPATH_FLOAT32, POLYPATH_FLOAT64, POLYPATH_BFLOAT16};
constexpr std::size_t kBytes[kTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
constexpr int kFirstFloat = 6;
constexpr int kOperators = 5;
// The least and the greatest are the other way round.
constexpr int kOperator[kOperators] = {POLYPATH_SUM, POLYPATH_PRODUCT, POLYPATH_MAX, POLYPATH_MIN,
                                       POLYPATH_AVG};

/// The size of a rank's larger buffer, as `polypath tune backend` has it; at least 1.
std::size_t bytes_of(Operation operation, std::size_t count, int type, int ranks) noexcept {
  const std::size_t parts = operation == Operation::reduce_scatter ||
                                    operation == Operation::all_gather ||
                                    operation == Operation::all_to_all
                                ? static_cast<std::size_t>(ranks)
                                : 1;
  return count * bytes_of_type(type) * parts;
}

}  // namespace

const char* name_of(Operation operation) noexcept {
  switch (operation) {
    case Operation::all_reduce: return "ncclAllReduce";
    case Operation::reduce_scatter: return "ncclReduceScatter";
    case Operation::reduce: return "ncclReduce";
    case Operation::all_gather: return "ncclAllGather";
    case Operation::broadcast: return "ncclBroadcast";
    case Operation::all_to_all: return "ncclAlltoAll";
  }
  return "";
}

const char* text_of(DeclineReason reason) noexcept {
  switch (reason) {
    case DeclineReason::taken: return "taken";
    case DeclineReason::no_communicator: return "no communicator";
    case DeclineReason::no_elements: return "no elements";
    case DeclineReason::own_operator: return "the program's own operator";
    case DeclineReason::other_type: return "another type";
    case DeclineReason::integer_average: return "average of integers";
    case DeclineReason::not_measured: return "not measured";
    case DeclineReason::not_faster: return "not faster";
    case DeclineReason::own_config: return "a configuration of its own";
    case DeclineReason::lost: return "communicator aborted";
  }
  return "";
}

std::size_t bytes_of_type(int type) noexcept {
  return type >= 0 && type < kTypes ? kBytes[type] : 0;
}
int type_of(int type) noexcept { return type >= 0 && type < kTypes ? kType[type] : kNone; }
int operator_of(int reduction) noexcept {
  return reduction >= 0 && reduction < kOperators ? kOperator[reduction] : kNone;
}
bool is_float(int type) noexcept { return type >= kFirstFloat; }

bool needs_rank_order(Operation operation, std::size_t count, int type, int reduction) noexcept {
  return combines(operation) && count > 0 && is_float(type) && reduction != kNcclMin &&
         reduction != kNcclMax;
}

bool has_demands(const CallConfig* config) noexcept {
  if (config == nullptr) return false;
  if (config->size < offsetof(CallConfig, launch_completion_event) ||
      config->magic != CallConfig::kMagic)
    return true;
  const bool has_event =
      config->size >= sizeof(CallConfig) && config->launch_completion_event != nullptr;
  return config->min_ctas != kUndefined || config->max_ctas != kUndefined ||
         config->nvls_ctas != kUndefined || config->cga_cluster_size != kUndefined ||
         config->cta_policy != kUndefined ||
         (config->algorithms != nullptr && *config->algorithms != '\0') || has_event;
}

bool takes_any(const Policy& policy) noexcept {
  return policy.reproducible ||
         std::ranges::any_of(policy.faster, [](std::uint64_t bits) { return bits != 0; });
}

DeclineReason choose(const Policy& policy, Operation operation, std::size_t count, int type,
                     int reduction, int ranks) noexcept {
  if (count == 0) return DeclineReason::no_elements;
  if (type_of(type) == kNone) return DeclineReason::other_type;
  if (combines(operation)) {
    if (operator_of(reduction) == kNone) return DeclineReason::own_operator;
    // Its rounding is another one.
    if (reduction == kAvg && !is_float(type)) return DeclineReason::integer_average;
    if (policy.reproducible && needs_rank_order(operation, count, type, reduction))
      return DeclineReason::taken;
  }
  const std::size_t bytes = bytes_of(operation, count, type, ranks);
  const auto at = static_cast<std::size_t>(operation);
  const std::uint64_t bit = std::uint64_t{1} << (std::bit_width(bytes) - 1);
  if ((policy.measured[at] & bit) == 0) return DeclineReason::not_measured;
  return (policy.faster[at] & bit) != 0 ? DeclineReason::taken : DeclineReason::not_faster;
}

}  // namespace polypath::nccl
