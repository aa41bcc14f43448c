#include "virtual_memory.hpp"

#include <sys/mman.h>

#include <bit>
#include <iterator>

#include "base/units.hpp"
#include "device_traits.hpp"
#include "failure.hpp"
#include "shadow.hpp"

namespace polypath::sim {
namespace {

constexpr std::size_t kGranularity = 2 * kMiB;
constexpr std::uint64_t kHandleMark = std::uint64_t{0x51D1} << 48;

bool is_granular(std::uint64_t value) { return value % kGranularity == 0; }

bool is_host(const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_HOST ||
         location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
         location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

void give_access(const Allocation& mapping, int accessor, CUmemAccess_flags flags) {
  mapping.access.by_device[accessor] = flags;
  if (accessor != Access::kCpu) return;
  const int shown = flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? PROT_READ | PROT_WRITE
                    : flags == CU_MEM_ACCESS_FLAGS_PROT_READ    ? PROT_READ
                                                                : PROT_NONE;
  static_cast<const HostShadow&>(*mapping.shadow).show(mapping.base, shown);
}

}  // namespace

std::size_t VirtualMemory::granularity(const CUmemAllocationProp* properties) const {
  location_of(properties);
  return kGranularity;
}

CUdeviceptr VirtualMemory::reserve(std::size_t bytes, std::size_t alignment) {
  require(bytes > 0 && is_granular(bytes), CUDA_ERROR_INVALID_VALUE);
  require(alignment == 0 || std::has_single_bit(alignment), CUDA_ERROR_INVALID_VALUE);
  const CUdeviceptr address = memory_.reserve(bytes, alignment);
  reservations_[address] = bytes;
  return address;
}

void VirtualMemory::free(CUdeviceptr address, std::size_t bytes) {
  const auto it = reservations_.find(address);
  require(it != reservations_.end() && it->second == bytes, CUDA_ERROR_INVALID_VALUE);
  require(memory_.find_overlap(address, bytes) == nullptr, CUDA_ERROR_INVALID_VALUE);
  reservations_.erase(it);
  memory_.release(address, bytes);
}

CUmemGenericAllocationHandle VirtualMemory::create(std::size_t bytes,
                                                   const CUmemAllocationProp* properties,
                                                   unsigned long long flags) {
  auto physical = std::make_shared<Physical>();
  physical->location = location_of(properties);
  require(flags == 0 && bytes > 0 && is_granular(bytes), CUDA_ERROR_INVALID_VALUE);
  physical->properties = *properties;
  physical->bytes = bytes;
  physical->held = 1;
  const std::uint64_t id = memory_.next_buffer_id();
  const bool is_pinned = physical->location.is_host();
  if (is_pinned) {
    physical->shadow = std::make_shared<HostShadow>(bytes);
  } else {
    physical->room = memory_.take(physical->location.index, bytes);
    physical->shadow = memory_.make_shadow(physical->location.index, bytes, id);
  }
  const CUmemGenericAllocationHandle handle = kHandleMark | id;
  physical->handle = handle;
  physicals_[handle] = std::move(physical);
  if (is_pinned) devices_.take_long(pin_us(bytes));
  return handle;
}

void VirtualMemory::release(CUmemGenericAllocationHandle handle) {
  if (--find_physical(handle)->held == 0) physicals_.erase(handle);
}

CUmemGenericAllocationHandle VirtualMemory::retain(CUdeviceptr address) {
  const AllocationPtr mapping = find_mapping(address);
  const std::shared_ptr<Physical>& physical = mapping->physical;
  ++physical->held;
  physicals_[physical->handle] = physical;
  return physical->handle;
}

const CUmemAllocationProp& VirtualMemory::properties(CUmemGenericAllocationHandle handle) const {
  return find_physical(handle)->properties;
}

void VirtualMemory::map(CUdeviceptr address, std::size_t bytes,
                        CUmemGenericAllocationHandle handle) {
  const std::shared_ptr<Physical>& physical = find_physical(handle);
  require(bytes == physical->bytes && is_granular(address), CUDA_ERROR_INVALID_VALUE);
  const auto [base, size] = find_reservation(address, bytes);
  require(memory_.find_overlap(address, bytes) == nullptr, CUDA_ERROR_INVALID_VALUE);
  Allocation mapping;
  mapping.kind = Allocation::Kind::mapping;
  mapping.base = address;
  mapping.bytes = bytes;
  mapping.location = physical->location;
  mapping.device = physical->location.is_gpu() ? physical->location.index : CU_DEVICE_CPU;
  mapping.shadow = physical->shadow;
  mapping.physical = physical;
  mapping.range_base = base;
  mapping.range_bytes = size;
  memory_.add(std::move(mapping));
}

void VirtualMemory::unmap(CUdeviceptr address, std::size_t bytes) {
  std::vector<AllocationPtr> mappings = find_mappings(address, bytes);
  for (const AllocationPtr& each : mappings) memory_.remove(each);
  for (AllocationPtr& each : mappings) deallocator_.release(std::move(each));
}

void VirtualMemory::set_access(CUdeviceptr address, std::size_t bytes,
                               std::span<const CUmemAccessDesc> accesses) {
  const std::vector<AllocationPtr> mappings = find_mappings(address, bytes);
  for (const CUmemAccessDesc& each : accesses) {
    require(each.flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ||
                each.flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
                each.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
            CUDA_ERROR_INVALID_VALUE);
    for (const AllocationPtr& mapping : mappings)
      require_possible(*mapping, accessor(each.location));
  }
  for (const CUmemAccessDesc& each : accesses)
    for (const AllocationPtr& mapping : mappings)
      give_access(*mapping, accessor(each.location), each.flags);
}

CUmemAccess_flags VirtualMemory::access(CUdeviceptr address, const CUmemLocation& location) const {
  return find_mapping(address)->access.get(accessor(location));
}

MemoryId VirtualMemory::location_of(const CUmemAllocationProp* properties) const {
  require(properties != nullptr && properties->type == CU_MEM_ALLOCATION_TYPE_PINNED,
          CUDA_ERROR_INVALID_VALUE);
  require(properties->requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE, CUDA_ERROR_NOT_SUPPORTED);
  const CUmemLocation& location = properties->location;
  if (location.type == CU_MEM_LOCATION_TYPE_DEVICE)
    return MemoryId::gpu(check_device(node_, location.id));
  require(location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA, CUDA_ERROR_INVALID_VALUE);
  for (std::size_t i = 0; i < node_.hosts.size(); ++i)
    if (node_.hosts[i].numa == location.id) return MemoryId::host(static_cast<int>(i));
  throw Failure{CUDA_ERROR_INVALID_VALUE};
}

const std::shared_ptr<Physical>& VirtualMemory::find_physical(
    CUmemGenericAllocationHandle handle) const {
  const auto it = physicals_.find(handle);
  require(it != physicals_.end(), CUDA_ERROR_INVALID_VALUE);
  return it->second;
}

std::pair<std::uintptr_t, std::size_t> VirtualMemory::find_reservation(std::uintptr_t address,
                                                                       std::size_t bytes) const {
  auto next = reservations_.upper_bound(address);
  require(next != reservations_.begin(), CUDA_ERROR_INVALID_VALUE);
  const auto& [base, size] = *std::prev(next);
  require(address - base <= size && bytes <= size - (address - base), CUDA_ERROR_INVALID_VALUE);
  return {base, size};
}

AllocationPtr VirtualMemory::find_mapping(std::uintptr_t address) const {
  AllocationPtr mapping = memory_.find(address);
  require(mapping && mapping->kind == Allocation::Kind::mapping, CUDA_ERROR_INVALID_VALUE);
  return mapping;
}

std::vector<AllocationPtr> VirtualMemory::find_mappings(std::uintptr_t address,
                                                        std::size_t bytes) const {
  std::vector<AllocationPtr> mappings;
  std::size_t covered = 0;
  while (covered < bytes) {
    AllocationPtr next = memory_.find(address + covered);
    require(next && next->kind == Allocation::Kind::mapping && next->base == address + covered,
            CUDA_ERROR_INVALID_VALUE);
    covered += next->bytes;
    mappings.push_back(std::move(next));
  }
  require(covered == bytes && bytes > 0, CUDA_ERROR_INVALID_VALUE);
  return mappings;
}

int VirtualMemory::accessor(const CUmemLocation& location) const {
  if (is_host(location)) return Access::kCpu;
  require(location.type == CU_MEM_LOCATION_TYPE_DEVICE && location.id >= 0 &&
              static_cast<std::size_t>(location.id) < node_.gpus.size(),
          CUDA_ERROR_INVALID_VALUE);
  return location.id;
}

void VirtualMemory::require_possible(const Allocation& mapping, int accessor) const {
  if (accessor == Access::kCpu)
    require(mapping.location.is_host(), CUDA_ERROR_INVALID_VALUE);
  else if (mapping.location.is_gpu() && mapping.location.index != accessor)
    require(has_peer_link(node_, accessor, mapping.location.index), CUDA_ERROR_INVALID_DEVICE);
}

}  // namespace polypath::sim
