#include "nccl/offload_policy.hpp"

#include <algorithm>
#include <bit>

#include "polypath/nccl_types.hpp"
#include "polypath/uniconn/enums.hpp"

namespace polypath::nccl {
namespace {

constexpr int kNone = -1;

/// polypath has `type`.
uniconn::Element element_of(int type) noexcept { return uniconn::Element(type_of(type)); }

/// The size of a rank's larger buffer, as `polypath tune backend` has it; at least 1.
std::size_t bytes_of(Operation operation, std::size_t count, int type, int ranks) noexcept {
  const bool has_parts = gate::sends_parts(operation) || gate::receives_parts(operation);
  const std::size_t parts = has_parts ? static_cast<std::size_t>(ranks) : 1;
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

std::size_t bytes_of_type(int type) noexcept {
  return type_of(type) != kNone ? uniconn::bytes_of(element_of(type)) : 0;
}
bool is_float(int type) noexcept {
  return type_of(type) != kNone ? !uniconn::is_integer(element_of(type)) : type > 0;
}

bool needs_rank_order(Operation operation, std::size_t count, int type, int reduction) noexcept {
  const int op = operator_of(reduction);
  return combines(operation) && count > 0 && is_float(type) && op != POLYPATH_MIN &&
         op != POLYPATH_MAX;
}

bool has_demands(const CallConfig* config) noexcept {
  if (config == nullptr) return false;
  if (config->size < offsetof(CallConfig, launch_completion_event) ||
      config->magic != CallConfig::kMagic)
    return true;
  const bool has_event =
      config->size >= sizeof(CallConfig) && config->launch_completion_event != nullptr;
  return config->min_ctas != CallConfig::kUnset || config->max_ctas != CallConfig::kUnset ||
         config->nvls_ctas != CallConfig::kUnset ||
         config->cga_cluster_size != CallConfig::kUnset ||
         config->cta_policy != CallConfig::kUnset ||
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
    if (operator_of(reduction) == POLYPATH_AVG && !is_float(type))
      return DeclineReason::integer_average;
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
