#include "core/split_thresholds.hpp"

#include <algorithm>

#include "base/units.hpp"
#include "plan/pair_class.hpp"

namespace polypath {
namespace {

constexpr std::uint64_t kMinSize = 4 * kKiB;
constexpr std::uint64_t kMaxSize = kGiB;

bool is_split(Planner& planner, Request request, std::uint64_t bytes) {
  request.bytes = bytes;
  return !planner.plan({&request, 1}, 0)->plan.native();
}

std::uint64_t min_split(Planner& planner, const Request& request) {
  std::uint64_t high = kMinSize;
  while (!is_split(planner, request, high)) {
    if (high >= kMaxSize) return UINT64_MAX;
    high *= 2;
  }
  std::uint64_t low = high / 2;
  while (high - low > kMinSize) {
    const std::uint64_t middle = low + (high - low) / 2;
    (is_split(planner, request, middle) ? high : low) = middle;
  }
  return high;
}

}  // namespace

Thresholds smallest_split(Planner& planner, const Node& node) {
  Thresholds least;
  for (const Request& request : one_of_each_class(node)) {
    std::uint64_t& kind = request.src.is_host()   ? least.host_to_gpu
                          : request.dst.is_host() ? least.gpu_to_host
                                                  : least.gpu_to_gpu;
    kind = std::min(kind, min_split(planner, request));
  }
  return least;
}

}  // namespace polypath
