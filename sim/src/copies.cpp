#include "copies.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <limits>
#include <map>

#include "device_traits.hpp"
#include "failure.hpp"
#include "reach.hpp"

namespace polypath::sim {
namespace {

// The size of the driver's own pinned buffer, through which it copies pageable memory. Assumed, not
// measured.
constexpr std::size_t kDriverBufferBytes = std::size_t{1} << 20;

/// The part of the pages that were never touched, by what the system says; 0 where it does not.
double untouched_part(std::uintptr_t address, std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  const std::uintptr_t first = address / kPage * kPage;
  const std::size_t pages = (address + bytes - first + kPage - 1) / kPage;
  std::vector<unsigned char> resident(pages);
  if (mincore(std::bit_cast<void*>(first), pages * kPage, resident.data()) != 0) return 0;
  const auto touched = std::ranges::count_if(resident, [](unsigned char page) { return page & 1; });
  return 1 - static_cast<double>(touched) / static_cast<double>(pages);
}

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
  // The address sanitizer's memmove is much slower than its memcpy.
  constexpr std::less_equal<const std::byte*> at_most;
  if (at_most(to + bytes, from) || at_most(from + bytes, to))
    std::memcpy(to, from, bytes);
  else
    std::memmove(to, from, bytes);
}

/// Fills memory with copies of the low bytes of the pattern's value.
void repeat(std::byte* at, std::size_t bytes, const FillPattern& pattern) {
  constexpr std::size_t kBlock = std::size_t{16} << 10;  // stays in the first-level cache
  if (pattern.bytes == 1) {
    std::memset(at, static_cast<unsigned char>(pattern.value), bytes);
    return;
  }
  std::memcpy(at, &pattern.value, pattern.bytes);
  for (std::size_t whole = pattern.bytes; whole < bytes;) {
    const std::size_t more = std::min({whole, kBlock, bytes - whole});
    std::memcpy(at + whole, at, more);
    whole += more;
  }
}

/// Calls `visit(offset in dst, offset in src, bytes)` for all that lies together on both sides.
template <typename Visit>
void for_each_run(const CopyRequest& request, const Operand& dst, const Operand& src,
                  const Visit& visit) {
  for (std::size_t layer = 0; layer < request.layers; ++layer) {
    for (std::size_t row = 0; row < request.rows; ++row) {
      const std::size_t to = layer * request.dst.layer_pitch + row * request.dst.row_pitch;
      const std::size_t from = layer * request.src.layer_pitch + row * request.src.row_pitch;
      for (std::size_t done = 0; done < request.bytes;) {
        const std::size_t bytes =
            std::min({request.bytes - done, dst.run(to + done), src.run(from + done)});
        visit(to + done, from + done, bytes);
        done += bytes;
      }
    }
  }
}

/// Mappings that a context's device uses by its own access.
using UsedMappings = std::vector<std::pair<AllocationPtr, CUmemAccess_flags>>;

void add_mappings(UsedMappings& used, const Pools& pools, const Context& context,
                  const Operand& operand, CUmemAccess_flags access) {
  const auto add = [&](const AllocationPtr& allocation) {
    if (allocation && allocation->kind == Allocation::Kind::mapping &&
        reach(pools, context, *allocation, access) == Reach::direct)
      used.emplace_back(allocation, access);
  };
  add(operand.allocation);
  for (const AllocationPtr& each : operand.further) add(each);
}

/// What a GPU gets whose access was taken away while it copied.
void fault_without_access(const Contexts& contexts, CUcontext handle, const UsedMappings& used) {
  Context* const context = contexts.find(handle);
  if (context == nullptr) return;
  for (const auto& [mapping, access] : used)
    if ((mapping->access.get(context->device) & access) != access)
      context->fault = CUDA_ERROR_ILLEGAL_ADDRESS;
}

/// What the driver's own copy from or to pageable memory reaches.
double pageable_gbps(const Costs& costs, const CopyRequest& request, const Operand& to) {
  if (to.allocation) return costs.pageable_to_gpu_gbps;
  const double part = untouched_part(request.dst.address, request.extent(request.dst));
  return 1 / ((1 - part) / costs.pageable_from_gpu_gbps + part / costs.pageable_untouched_gbps);
}

}  // namespace

PreparedCopy Copies::prepare(const Context& context, const CopyRequest& request) {
  const MemoryId near = host_near(node_, context.device);
  const Operand to = find_operand(memory_, request.dst.address, request.extent(request.dst), near);
  const Operand from =
      find_operand(memory_, request.src.address, request.extent(request.src), near);
  const Reach reached = std::max(
      reach(pools_, contexts_, context, to, request.dst.context,
            CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
      reach(pools_, contexts_, context, from, request.src.context, CU_MEM_ACCESS_FLAGS_PROT_READ));
  require(reached != Reach::refused, CUDA_ERROR_INVALID_VALUE);

  // Several mappings may lie in several memories: the copy takes all their links at once.
  std::map<std::pair<MemoryId, MemoryId>, std::size_t> parts;
  if (to.further.empty() && from.further.empty()) {
    parts[{from.location, to.location}] = request.total();
  } else {
    for_each_run(request, to, from, [&](std::size_t dst, std::size_t src, std::size_t bytes) {
      parts[{from.location_at(src), to.location_at(dst)}] += bytes;
    });
  }
  PreparedCopy prepared;
  prepared.is_pageable = !to.allocation || !from.allocation;
  FlowDemand demand;
  std::vector<std::pair<int, std::size_t>> moved;  // by link
  for (const auto& [ends, bytes] : parts) {
    const auto& [source, destination] = ends;
    CopyRoute route =
        source.is_host() && destination.is_host()
            ? routing_.local_route(source, destination)
            : routing_.route(context.device, source, destination, reached == Reach::direct);
    for (const int resource : route.demand.resources)
      if (std::ranges::find(demand.resources, resource) == demand.resources.end())
        demand.resources.push_back(resource);
    demand.max_gbps = std::min(demand.max_gbps, route.demand.max_gbps);
    for (const int link : route.links) moved.emplace_back(link, bytes);
    if (prepared.is_pageable)
      demand.max_gbps = std::min(demand.max_gbps, pageable_gbps(node_.costs, request, to));
    prepared.is_bounced = prepared.is_bounced || route.is_bounced;
    prepared.has_host_side = prepared.has_host_side || source.is_host() || destination.is_host();
  }
  demand.bytes = static_cast<double>(request.total());
  const auto syncs = [](const Operand& side) {
    return side.allocation && side.allocation->syncs_copies;
  };
  prepared.is_waited_for = syncs(to) || syncs(from) || (context.flags & CU_CTX_SYNC_MEMOPS) != 0;
  prepared.is_upload = to.allocation && !from.allocation && to.location.is_gpu() &&
                       request.rows == 1 && request.layers == 1;
  prepared.operation.flow = std::move(demand);
  prepared.operation.move = [request, to, from] {
    for_each_run(request, to, from, [&](std::size_t dst, std::size_t src, std::size_t bytes) {
      move_bytes(to.overwrite(dst, bytes), from.read(src, bytes), bytes);
    });
  };
  UsedMappings used;
  add_mappings(used, pools_, context, to, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  add_mappings(used, pools_, context, from, CU_MEM_ACCESS_FLAGS_PROT_READ);
  prepared.operation.effect = [this, moved = std::move(moved), used = std::move(used),
                               by = context.handle] {
    fault_without_access(contexts_, by, used);
    for (const auto& [link, bytes] : moved) {
      counters_.links[static_cast<std::size_t>(link)].bytes += bytes;
      counters_.links[static_cast<std::size_t>(link)].copies += 1;
    }
  };
  return prepared;
}

void Copies::count(const PreparedCopy& prepared) {
  counters_.copies += 1;
  counters_.bounced += prepared.is_bounced ? 1 : 0;
  counters_.pageable += prepared.is_pageable ? 1 : 0;
}

GraphWork Copies::graph_copy(const Context& context, const CopyRequest& request,
                             const PreparedCopy& prepared) const {
  const bool is_plain = request.rows == 1 && request.layers == 1 &&
                        request.dst.context == nullptr && request.src.context == nullptr &&
                        !prepared.is_pageable;
  if (!is_plain) return {};
  const auto placement = [&](const CopyRequest::Side& side) {
    return find_operand(memory_, side.address, request.bytes, host_near(node_, context.device))
        .placement();
  };
  return GraphCopy{request.dst.address, request.src.address,    request.bytes,
                   context.handle,      placement(request.dst), placement(request.src)};
}

void Copies::upload(const CopyRequest& source_request, CUstream handle) {
  const std::size_t late = std::min(source_request.bytes, kDriverBufferBytes);
  const std::size_t early = source_request.bytes - late;
  // What is waited for lets others' calls go on: nothing that was looked up is kept.
  const auto part = [&](std::size_t begin, std::size_t bytes) {
    CopyRequest request = source_request;
    request.dst.address += begin;
    request.src.address += begin;
    request.bytes = bytes;
    return request;
  };
  const auto prepared = [&](const CopyRequest& request) {
    return prepare(contexts_.get(streams_.get(handle).context), request).operation;
  };
  devices_.wait(
      streams_.enqueue(streams_.get(handle), early > 0 ? prepared(part(0, early)) : Operation{}));
  const auto buffer = std::make_shared<std::vector<std::byte>>(late);
  std::memcpy(buffer->data(), std::bit_cast<const std::byte*>(source_request.src.address + early),
              late);
  CopyRequest rest = part(early, late);
  rest.src.address = std::bit_cast<std::uintptr_t>(buffer->data());
  Operation operation = prepared(rest);
  operation.move = [buffer, move = std::move(operation.move)] { move(); };
  streams_.enqueue(streams_.get(handle), std::move(operation));
}

void Copies::copy(const CopyRequest& request, CUstream handle, bool is_synchronous) {
  contexts_.current();
  if (is_synchronous) captures_.require_unsafe_calls_allowed();
  if (request.total() == 0) return;
  streams_.wait_for_room(handle);
  Stream& on = streams_.get(handle);
  PreparedCopy prepared = prepare(contexts_.get(on.context), request);
  if (on.capture.is_active()) {
    captures_.add_node(on.capture, graph_copy(contexts_.get(on.context), request, prepared));
    return;
  }
  count(prepared);
  if (prepared.is_upload) {
    devices_.spend(node_.costs.copy_issue_us);
    upload(request, handle);
    return;
  }
  const bool is_waited_for = prepared.is_pageable ||
                             (is_synchronous && (prepared.has_host_side || prepared.is_waited_for));
  const OperationPtr issued = streams_.enqueue(on, std::move(prepared.operation));
  devices_.spend(node_.costs.copy_issue_us);
  if (is_waited_for) devices_.wait(issued);
}

void Copies::copy_batch(std::span<const CopyRequest> requests, CUstream handle, bool is_waited_for,
                        std::size_t& failed) {
  streams_.wait_for_room(handle, requests.size());
  Stream& stream = streams_.get(handle);
  if (stream.capture.is_active()) fail_not_supported("cuMemcpyBatchAsync in a capture");
  std::vector<PreparedCopy> prepared;
  for (failed = 0; failed < requests.size(); ++failed)
    prepared.push_back(prepare(contexts_.get(stream.context), requests[failed]));
  failed = SIZE_MAX;
  OperationPtr last;
  for (PreparedCopy& copy : prepared) {
    count(copy);
    is_waited_for = is_waited_for || copy.is_pageable;
    last = streams_.enqueue(stream, std::move(copy.operation));
  }
  devices_.spend(node_.costs.copy_issue_us);
  if (is_waited_for) devices_.wait(last);
}

void Copies::fill(std::uintptr_t dst, const FillPattern& pattern, std::size_t count,
                  CUstream handle, bool is_synchronous) {
  contexts_.current();
  require(
      count <= std::numeric_limits<std::size_t>::max() / pattern.bytes && dst % pattern.bytes == 0,
      CUDA_ERROR_INVALID_VALUE);
  const std::size_t bytes = count * pattern.bytes;
  if (bytes > 0) streams_.wait_for_room(handle);
  Stream& on = streams_.get(handle);
  if (bytes == 0) return;
  const Context& context = contexts_.get(on.context);
  const Operand to = find_operand(memory_, dst, bytes, host_near(node_, context.device));
  require(to.allocation != nullptr && reach(pools_, contexts_, context, to, nullptr,
                                            CU_MEM_ACCESS_FLAGS_PROT_READWRITE) == Reach::direct,
          CUDA_ERROR_INVALID_VALUE);
  if (on.capture.is_active()) {
    captures_.add_node(on.capture, {});
    return;
  }
  Operation operation;
  operation.flow = routing_.local_route(to.location, to.location).demand;
  operation.flow->bytes = static_cast<double>(bytes);
  operation.move = [to, pattern, bytes] {
    for (std::size_t done = 0; done < bytes;) {
      const std::size_t run = std::min(bytes - done, to.run(done));
      if (pattern.is_zero())
        to.at(done)->clear(to.address + done, run);
      else
        repeat(to.overwrite(done, run), run, pattern);
      done += run;
    }
  };
  UsedMappings used;
  add_mappings(used, pools_, context, to, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  if (!used.empty())
    operation.effect = [this, used = std::move(used), by = context.handle] {
      fault_without_access(contexts_, by, used);
    };
  const OperationPtr issued = streams_.enqueue(on, std::move(operation));
  devices_.spend(node_.costs.copy_issue_us);
  if (is_synchronous && !to.location.is_gpu()) devices_.wait(issued);
}

}  // namespace polypath::sim
