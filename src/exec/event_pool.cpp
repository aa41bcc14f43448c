#include "exec/event_pool.hpp"

#include <cstddef>

#include "driver/check.hpp"
#include "exec/context_guard.hpp"

namespace polypath {

EventPool::EventPool(std::shared_ptr<const CudaDriver> driver, Devices& devices)
    : driver_(std::move(driver)),
      devices_(devices),
      free_(static_cast<std::size_t>(devices.count())) {}

EventPool::~EventPool() {
  for (const CUevent event : all_) POLYPATH_WARN(*driver_, event_destroy(event));
}

CUevent EventPool::create(int gpu) {
  ContextGuard guard(*driver_);
  guard.use(devices_.context(gpu));
  all_.reserve(all_.size() + 1);
  CUevent event = nullptr;
  POLYPATH_CHECK(*driver_, event_create(&event, CU_EVENT_DISABLE_TIMING));
  all_.push_back(event);
  return event;
}

CUevent EventPool::acquire(int gpu) {
  auto& free = free_[static_cast<std::size_t>(gpu)];
  if (free.empty()) {
    free.reserve(all_.size() + 1);
    return create(gpu);
  }
  const CUevent event = free.back();
  free.pop_back();
  return event;
}

void EventPool::release(int gpu, CUevent event) {
  free_[static_cast<std::size_t>(gpu)].push_back(event);
}

void EventPool::reserve(int gpu, std::size_t count) {
  auto& free = free_[static_cast<std::size_t>(gpu)];
  while (free.size() < count) free.push_back(create(gpu));
}

}  // namespace polypath
