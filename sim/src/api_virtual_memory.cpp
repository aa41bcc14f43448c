// Virtual memory management: reservations of addresses, physical memory of GPUs and NUMA domains,
// mappings of it and access to them. It cannot be shared with other processes, and says so.
#include "shadow.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <new>
#include <span>

#include "base/units.hpp"
#include "call.hpp"
#include "device_traits.hpp"

using namespace polypath::sim;

namespace {

constexpr std::size_t kGranularity = 2 * polypath::kMiB;
constexpr std::uint64_t kHandleMark = std::uint64_t{0x51D1} << 48;

bool is_granular(std::uint64_t value) { return value % kGranularity == 0; }

bool is_host(const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_HOST ||
         location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
         location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

/// Where memory with these properties lies.
polypath::MemoryId location_of(const Driver& driver, const CUmemAllocationProp* properties) {
  require(properties != nullptr && properties->type == CU_MEM_ALLOCATION_TYPE_PINNED,
          CUDA_ERROR_INVALID_VALUE);
  require(properties->requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE, CUDA_ERROR_NOT_SUPPORTED);
  const CUmemLocation& location = properties->location;
  if (location.type == CU_MEM_LOCATION_TYPE_DEVICE)
    return polypath::MemoryId::gpu(check_device(driver.node, location.id));
  require(location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA, CUDA_ERROR_INVALID_VALUE);
  for (std::size_t i = 0; i < driver.node.hosts.size(); ++i)
    if (driver.node.hosts[i].numa == location.id)
      return polypath::MemoryId::host(static_cast<int>(i));
  throw Failure{CUDA_ERROR_INVALID_VALUE};
}

Physical& find_physical(const Driver& driver, CUmemGenericAllocationHandle handle) {
  const auto it = driver.physicals.find(handle);
  require(it != driver.physicals.end(), CUDA_ERROR_INVALID_VALUE);
  return *it->second;
}

/// The reservation that the whole range lies in.
std::pair<std::uintptr_t, std::size_t> find_reservation(const Driver& driver,
                                                        std::uintptr_t address, std::size_t bytes) {
  auto next = driver.reservations.upper_bound(address);
  require(next != driver.reservations.begin(), CUDA_ERROR_INVALID_VALUE);
  const auto& [base, size] = *std::prev(next);
  require(address - base <= size && bytes <= size - (address - base), CUDA_ERROR_INVALID_VALUE);
  return {base, size};
}

/// The mappings that the range consists of. Failure INVALID_VALUE unless it is made of whole ones,
/// without gaps.
std::vector<AllocationPtr> find_mappings(const Driver& driver, std::uintptr_t address,
                                         std::size_t bytes) {
  std::vector<AllocationPtr> mappings;
  std::size_t covered = 0;
  while (covered < bytes) {
    AllocationPtr next = driver.memory.find(address + covered);
    require(next && next->kind == Allocation::Kind::mapping && next->base == address + covered,
            CUDA_ERROR_INVALID_VALUE);
    covered += next->bytes;
    mappings.push_back(std::move(next));
  }
  require(covered == bytes && bytes > 0, CUDA_ERROR_INVALID_VALUE);
  return mappings;
}

/// The accessor at this location, by the numbers of Access.
int accessor(const Driver& driver, const CUmemLocation& location) {
  if (is_host(location)) return Access::kCpu;
  require(location.type == CU_MEM_LOCATION_TYPE_DEVICE && location.id >= 0 &&
              static_cast<std::size_t>(location.id) < driver.node.gpus.size(),
          CUDA_ERROR_INVALID_VALUE);
  return location.id;
}

void require_possible(const Driver& driver, const Allocation& mapping, int accessor) {
  if (accessor == Access::kCpu)
    require(mapping.location.is_host(), CUDA_ERROR_INVALID_VALUE);
  else if (mapping.location.is_gpu() && mapping.location.index != accessor)
    require(has_peer_link(driver.node, accessor, mapping.location.index),
            CUDA_ERROR_INVALID_DEVICE);
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

CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* properties,
                                       CUmemAllocationGranularity_flags) {
  return call([&](Driver& driver) {
    std::size_t& result = out(granularity);
    location_of(driver, properties);
    result = kGranularity;
  });
}

CUresult cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t alignment, CUdeviceptr,
                             unsigned long long flags) {
  return call([&](Driver& driver) {
    CUdeviceptr& result = out(address);
    require(flags == 0 && bytes > 0 && is_granular(bytes), CUDA_ERROR_INVALID_VALUE);
    require(alignment == 0 || std::has_single_bit(alignment), CUDA_ERROR_INVALID_VALUE);
    result = driver.memory.reserve(bytes, alignment);
    driver.reservations[result] = bytes;
  });
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  return call([&](Driver& driver) {
    const auto it = driver.reservations.find(address);
    require(it != driver.reservations.end() && it->second == bytes, CUDA_ERROR_INVALID_VALUE);
    require(driver.memory.find_overlap(address, bytes) == nullptr, CUDA_ERROR_INVALID_VALUE);
    driver.reservations.erase(it);
    driver.memory.release(address, bytes);
  });
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                     const CUmemAllocationProp* properties, unsigned long long flags) {
  return call([&](Driver& driver) {
    CUmemGenericAllocationHandle& result = out(handle);
    auto physical = std::make_shared<Physical>();
    physical->location = location_of(driver, properties);
    require(flags == 0 && bytes > 0 && is_granular(bytes), CUDA_ERROR_INVALID_VALUE);
    physical->properties = *properties;
    physical->bytes = bytes;
    physical->held = 1;
    const std::uint64_t id = driver.memory.next_buffer_id();
    if (physical->location.is_gpu()) {
      physical->room = driver.memory.take(physical->location.index, bytes);
      physical->shadow = driver.memory.make_shadow(physical->location.index, bytes, id);
    } else {
      physical->shadow = std::make_shared<HostShadow>(bytes);
    }
    physical->handle = result = kHandleMark | id;
    const bool is_pinned = physical->location.is_host();
    driver.physicals[result] = std::move(physical);
    if (is_pinned) driver.devices().take_long(pin_us(bytes));
  });
}

// Memory that is mapped stays until it is unmapped.
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  return call([&](Driver& driver) {
    if (--find_physical(driver, handle).held == 0) driver.physicals.erase(handle);
  });
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  return call([&](Driver& driver) {
    CUmemGenericAllocationHandle& result = out(handle);
    const AllocationPtr mapping = driver.memory.find(std::bit_cast<std::uintptr_t>(address));
    require(mapping && mapping->kind == Allocation::Kind::mapping, CUDA_ERROR_INVALID_VALUE);
    ++mapping->physical->held;
    result = mapping->physical->handle;
    driver.physicals[result] = mapping->physical;
  });
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties,
                                                CUmemGenericAllocationHandle handle) {
  return call([&](Driver& driver) { out(properties) = find_physical(driver, handle).properties; });
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags) {
  return call([&](Driver& driver) {
    find_physical(driver, handle);
    const std::shared_ptr<Physical> physical = driver.physicals.at(handle);
    require(flags == 0 && offset == 0 && bytes == physical->bytes && is_granular(address),
            CUDA_ERROR_INVALID_VALUE);
    const auto [base, size] = find_reservation(driver, address, bytes);
    require(driver.memory.find_overlap(address, bytes) == nullptr, CUDA_ERROR_INVALID_VALUE);
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
    driver.memory.add(std::move(mapping));
  });
}

// Waits for all work that uses the mappings.
CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  return call([&](Driver& driver) {
    std::vector<AllocationPtr> mappings = find_mappings(driver, address, bytes);
    for (const AllocationPtr& each : mappings) driver.memory.remove(each);
    for (AllocationPtr& each : mappings) driver.deallocator().release(std::move(each));
  });
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* accesses,
                        size_t count) {
  return call([&](Driver& driver) {
    require(accesses != nullptr && count > 0, CUDA_ERROR_INVALID_VALUE);
    const std::vector<AllocationPtr> mappings = find_mappings(driver, address, bytes);
    const std::span all(accesses, count);
    for (const CUmemAccessDesc& each : all) {
      require(each.flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ||
                  each.flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
                  each.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
              CUDA_ERROR_INVALID_VALUE);
      for (const AllocationPtr& mapping : mappings)
        require_possible(driver, *mapping, accessor(driver, each.location));
    }
    for (const CUmemAccessDesc& each : all)
      for (const AllocationPtr& mapping : mappings)
        give_access(*mapping, accessor(driver, each.location), each.flags);
  });
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location,
                        CUdeviceptr address) {
  return call([&](Driver& driver) {
    unsigned long long& result = out(flags);
    const AllocationPtr mapping = driver.memory.find(address);
    require(mapping && mapping->kind == Allocation::Kind::mapping, CUDA_ERROR_INVALID_VALUE);
    result = mapping->access.get(accessor(driver, out(location)));
  });
}

CUresult cuMemExportToShareableHandle(void*, CUmemGenericAllocationHandle,
                                      CUmemAllocationHandleType, unsigned long long) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle*, void*,
                                        CUmemAllocationHandleType) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuMemPoolExportToShareableHandle(void*, CUmemoryPool, CUmemAllocationHandleType,
                                          unsigned long long) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool*, void*, CUmemAllocationHandleType,
                                            unsigned long long) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData*, CUdeviceptr) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuMemPoolImportPointer(CUdeviceptr*, CUmemoryPool, CUmemPoolPtrExportData*) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
