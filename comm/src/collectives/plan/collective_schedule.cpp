#include "collectives/plan/collective_schedule.hpp"

namespace polypath {
namespace {

std::uint64_t element_bytes(const CollectiveSchedule& schedule, const Place& place) {
  const CollectiveRequest& request = schedule.request;
  return size_of(place.is_partial ? request.partial_type() : request.type);
}

}  // namespace

std::uint64_t elements_of(const CollectiveSchedule& schedule, const Step& step) {
  return step.bytes / element_bytes(schedule, step.to);
}

std::uint64_t bytes_of(const CollectiveSchedule& schedule, const Step& step, const Place& place) {
  return elements_of(schedule, step) * element_bytes(schedule, place);
}

}  // namespace polypath
