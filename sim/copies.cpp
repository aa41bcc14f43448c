#include <bit>
#include <cstring>

#include "driver.hpp"
#include "failure.hpp"

namespace polypath::sim {
namespace {

// Of the rate of pinned memory, what pageable memory reaches, through the driver's own pinned buffer.
// Assumed, not measured.
constexpr double kPageableShare = 0.25;

/// One side of a copy.
struct Operand {
  std::uintptr_t address = 0;
  AllocationPtr allocation;  ///< null: pageable host memory
  MemoryId location;

  [[nodiscard]] const std::byte* read(std::size_t bytes) const {
    return allocation ? allocation->read(address, bytes) : std::bit_cast<const std::byte*>(address);
  }
  [[nodiscard]] std::byte* overwrite(std::size_t bytes) const {
    return allocation ? allocation->overwrite(address, bytes) : std::bit_cast<std::byte*>(address);
  }
};

Operand find_operand(const Driver& driver, std::uintptr_t address, std::size_t bytes,
                     MemoryId pageable_location) {
  require(address != 0, CUDA_ERROR_INVALID_VALUE);
  const AllocationPtr allocation = driver.memory.find_overlap(address, bytes);
  if (!allocation) {
    require(!driver.memory.owns(address), CUDA_ERROR_INVALID_VALUE);
    return {address, nullptr, pageable_location};
  }
  // A range that begins before the allocation, or ends after it, is out of bounds.
  const std::uintptr_t offset = address - allocation->base;
  require(offset < allocation->bytes && bytes <= allocation->bytes - offset,
          CUDA_ERROR_INVALID_VALUE);
  return {address, allocation, allocation->location};
}

/// True when the copy engine of the stream's device has the memory in its address space.
bool may_reach(const Driver& driver, const Stream& stream, const Operand& operand) {
  if (!operand.allocation || !operand.allocation->is_on_device()) return true;
  const Allocation& allocation = *operand.allocation;
  if (allocation.device == stream.device) return true;
  if (allocation.kind == Allocation::Kind::pool)
    return driver.pools.get(allocation.pool).access.contains(stream.device);
  return driver.contexts.get(stream.context).peers.contains(allocation.context);
}

}  // namespace

void Driver::copy(std::uintptr_t dst, std::uintptr_t src, std::size_t bytes, CUstream handle,
                  bool completed) {
  current_context();
  if (completed) require_capture_allows();
  Stream& on = stream(handle);
  if (bytes == 0) return;
  const MemoryId near = MemoryId::host(node.gpus[static_cast<std::size_t>(on.device)].numa);
  const Operand to = find_operand(*this, dst, bytes, near);
  const Operand from = find_operand(*this, src, bytes, near);
  const bool is_pageable = !to.allocation || !from.allocation;
  if (on.capture.is_active()) {
    on.capture.add_node();
    return;
  }

  CopyRoute route = from.location.is_host() && to.location.is_host()
                        ? routing_.local_route(from.location, to.location)
                        : routing_.route(on.device, from.location, to.location,
                                         may_reach(*this, on, from) && may_reach(*this, on, to));
  if (is_pageable)
    for (const int link : route.links)
      route.demand.max_gbps = std::min(
          route.demand.max_gbps, kPageableShare * node.links[static_cast<std::size_t>(link)].gbps);
  route.demand.bytes = static_cast<double>(bytes);

  Operation operation;
  operation.flow = std::move(route.demand);
  operation.effect = [this, to, from, bytes, links = route.links] {
    std::memmove(to.overwrite(bytes), from.read(bytes), bytes);
    for (const int link : links) {
      counters.links[static_cast<std::size_t>(link)].bytes += bytes;
      counters.links[static_cast<std::size_t>(link)].copies += 1;
    }
  };
  counters.copies += 1;
  counters.bounced += route.is_bounced ? 1 : 0;
  counters.pageable += is_pageable ? 1 : 0;
  const OperationPtr issued = enqueue(on, std::move(operation));
  spend(node.costs.copy_issue_us);
  if (completed || is_pageable) wait(issued);
}

void Driver::fill(std::uintptr_t dst, std::byte value, std::size_t bytes, CUstream handle) {
  current_context();
  Stream& on = stream(handle);
  if (bytes == 0) return;
  const MemoryId near = MemoryId::host(node.gpus[static_cast<std::size_t>(on.device)].numa);
  const Operand to = find_operand(*this, dst, bytes, near);
  require(to.allocation != nullptr && may_reach(*this, on, to), CUDA_ERROR_INVALID_VALUE);
  if (on.capture.is_active()) {
    on.capture.add_node();
    return;
  }
  Operation operation;
  operation.flow = routing_.local_route(to.location, to.location).demand;
  operation.flow->bytes = static_cast<double>(bytes);
  operation.effect = [to, value, bytes] {
    std::memset(to.overwrite(bytes), std::to_integer<int>(value), bytes);
  };
  enqueue(on, std::move(operation));
  spend(node.costs.copy_issue_us);
}

}  // namespace polypath::sim
