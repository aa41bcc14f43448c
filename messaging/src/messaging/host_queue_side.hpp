// The CPU's side of one queue or pair for items of any size: what is after the calls of
// polypath/messaging/queue.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "polypath/device/queue_view.hpp"
#include "polypath/device/spsc_view.hpp"
#include "polypath/device/status.hpp"
#include "polypath/messaging/queue.h"

namespace polypath {

/// As host_queue, host_spsc_producer and host_spsc_consumer. `awaited`: the turn at which a wait
/// timed out or was aborted, else as it was or any. What a side does not do throws InvalidArgument.
class HostQueueSide {
 public:
  virtual ~HostQueueSide() = default;
  virtual device::status push(const void* items, std::size_t count, std::uint64_t& awaited) = 0;
  virtual device::status try_push(const void* items, std::size_t count) = 0;
  virtual device::status pop(void* items, std::size_t count, std::size_t& got,
                             std::uint64_t& awaited) = 0;
  virtual device::status try_pop(void* items, std::size_t count, std::size_t& got) = 0;
  virtual void close() = 0;

  static std::unique_ptr<HostQueueSide> make(const device::queue_view& view,
                                             std::size_t item_bytes);
  static std::unique_ptr<HostQueueSide> make(const device::spsc_view& view,
                                             polypath_queue_side side, std::size_t item_bytes);
};

}  // namespace polypath
