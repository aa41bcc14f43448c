#include <algorithm>
#include <bit>
#include <cstring>

#include "driver.hpp"
#include "failure.hpp"
#include "operand.hpp"

namespace polypath::sim {
namespace {

// Of the rate of pinned memory, what pageable memory reaches, through the driver's own pinned buffer.
// Assumed, not measured.
constexpr double kPageableShare = 0.25;

/// Moves the bytes at once if they are exactly one word; false when they are not.
template <typename Word>
bool move_word(std::byte* to, const std::byte* from, std::size_t bytes) {
  const auto is_aligned = [](const std::byte* at) {
    return std::bit_cast<std::uintptr_t>(at) % alignof(Word) == 0;
  };
  if (bytes != sizeof(Word) || !is_aligned(to) || !is_aligned(from)) return false;
  const Word word = __atomic_load_n(reinterpret_cast<const Word*>(from), __ATOMIC_RELAXED);
  __atomic_store_n(reinterpret_cast<Word*>(to), word, __ATOMIC_RELEASE);
  return true;
}

/// A stream may wait for a word (cuStreamWaitValue32 and 64).
void move_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (move_word<std::uint32_t>(to, from, bytes) || move_word<std::uint64_t>(to, from, bytes))
    return;
  std::memmove(to, from, bytes);
}

/// True when the copy engine of the context's device has the memory in its address space.
bool may_reach(const Driver& driver, const Context& context, const Operand& operand) {
  if (!operand.allocation || !operand.allocation->is_on_device()) return true;
  const Allocation& allocation = *operand.allocation;
  if (allocation.import) return allocation.context == context.handle;
  if (allocation.device == context.device) return true;
  if (allocation.kind == Allocation::Kind::pool)
    return driver.pools.get(allocation.pool).access.contains(context.device);
  return context.peers.contains(allocation.context);
}

}  // namespace

MemoryId Driver::host_near(const Context& context) const {
  return MemoryId::host(node.gpus[static_cast<std::size_t>(context.device)].numa);
}

PreparedCopy Driver::prepare_copy(const Context& context, std::uintptr_t dst, std::uintptr_t src,
                                  std::size_t bytes) {
  const Operand to = find_operand(memory, dst, bytes, host_near(context));
  const Operand from = find_operand(memory, src, bytes, host_near(context));
  const bool is_pageable = !to.allocation || !from.allocation;
  CopyRoute route =
      from.location.is_host() && to.location.is_host()
          ? routing_.local_route(from.location, to.location)
          : routing_.route(context.device, from.location, to.location,
                           may_reach(*this, context, from) && may_reach(*this, context, to));
  if (is_pageable)
    for (const int link : route.links)
      route.demand.max_gbps = std::min(
          route.demand.max_gbps, kPageableShare * node.links[static_cast<std::size_t>(link)].gbps);
  route.demand.bytes = static_cast<double>(bytes);

  PreparedCopy prepared{
      {}, route.is_bounced, is_pageable, from.location.is_host() || to.location.is_host()};
  const auto syncs = [](const Operand& side) {
    return side.allocation && side.allocation->syncs_copies;
  };
  prepared.is_waited_for = syncs(to) || syncs(from) || (context.flags & CU_CTX_SYNC_MEMOPS) != 0;
  prepared.operation.flow = std::move(route.demand);
  prepared.operation.move = [to, from, bytes] {
    move_bytes(to.overwrite(bytes), from.read(bytes), bytes);
  };
  prepared.operation.effect = [this, bytes, links = route.links] {
    for (const int link : links) {
      counters.links[static_cast<std::size_t>(link)].bytes += bytes;
      counters.links[static_cast<std::size_t>(link)].copies += 1;
    }
  };
  return prepared;
}

void Driver::count(const PreparedCopy& prepared) {
  counters.copies += 1;
  counters.bounced += prepared.is_bounced ? 1 : 0;
  counters.pageable += prepared.is_pageable ? 1 : 0;
}

void Driver::copy(std::uintptr_t dst, std::uintptr_t src, std::size_t bytes, CUstream handle,
                  bool is_synchronous) {
  current_context();
  if (is_synchronous) require_capture_allows();
  if (bytes > 0) wait_for_room(handle);
  Stream& on = stream(handle);
  if (bytes == 0) return;
  PreparedCopy prepared = prepare_copy(contexts.get(on.context), dst, src, bytes);
  if (on.capture.is_active()) {
    on.capture.add_node();
    return;
  }
  count(prepared);
  const bool is_waited_for = prepared.is_pageable ||
                             (is_synchronous && (prepared.has_host_side || prepared.is_waited_for));
  const OperationPtr issued = enqueue(on, std::move(prepared.operation));
  spend(node.costs.copy_issue_us);
  if (is_waited_for) wait(issued);
}

void Driver::fill(std::uintptr_t dst, std::byte value, std::size_t bytes, CUstream handle) {
  current_context();
  if (bytes > 0) wait_for_room(handle);
  Stream& on = stream(handle);
  if (bytes == 0) return;
  const Context& context = contexts.get(on.context);
  const Operand to = find_operand(memory, dst, bytes, host_near(context));
  require(to.allocation != nullptr && may_reach(*this, context, to), CUDA_ERROR_INVALID_VALUE);
  if (on.capture.is_active()) {
    on.capture.add_node();
    return;
  }
  Operation operation;
  operation.flow = routing_.local_route(to.location, to.location).demand;
  operation.flow->bytes = static_cast<double>(bytes);
  operation.move = [to, value, bytes] {
    std::memset(to.overwrite(bytes), std::to_integer<int>(value), bytes);
  };
  enqueue(on, std::move(operation));
  spend(node.costs.copy_issue_us);
}

}  // namespace polypath::sim
