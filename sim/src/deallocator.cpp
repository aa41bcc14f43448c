#include "deallocator.hpp"

#include <utility>

namespace polypath::sim {

void Deallocator::free(AllocationPtr allocation) {
  memory_.remove(allocation);
  if (allocation->context != nullptr) streams_.synchronize(allocation->context);
  release(std::move(allocation));
}

void Deallocator::free_all(CUcontext context) {
  // One after another: another thread may free some of them while this one waits.
  const auto is_of_context = [context](const Allocation& each) { return each.context == context; };
  while (AllocationPtr allocation = memory_.find_if(is_of_context)) {
    memory_.remove(allocation);
    release(std::move(allocation));
  }
}

void Deallocator::release(AllocationPtr allocation) {
  devices_.wait_until([&allocation] { return allocation.use_count() == 1; });
  reclaim(allocation);
}

void Deallocator::reclaim(const AllocationPtr& allocation) {
  memory_.release(allocation);
  if (allocation->pool != nullptr) pools_.forget(allocation->pool);
}

}  // namespace polypath::sim
