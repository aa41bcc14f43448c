// Pointer attributes. The plural form succeeds with null values on pointers that the driver does
// not know; the singular one fails.
#include <fmt/format.h>

#include "call.hpp"

using namespace polypath::sim;

namespace {

constexpr int kNoDevice = -2;  // CU_DEVICE_INVALID

template <typename T>
void put(void* data, T value) {
  *static_cast<T*>(data) = value;
}

unsigned memory_type(const Allocation& allocation) {
  const bool is_device = allocation.is_on_device() || allocation.kind == Allocation::Kind::managed;
  return is_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
}

/// The whole reservation for a mapping, which has others next to it.
std::pair<std::uintptr_t, std::size_t> range_of(const Allocation& allocation) {
  if (allocation.kind == Allocation::Kind::mapping)
    return {allocation.range_base, allocation.range_bytes};
  return {allocation.base, allocation.bytes};
}

unsigned access_flags(Driver& driver, const Allocation& allocation, int device) {
  // The flags have the values of the attribute: none, read, read and write.
  if (allocation.kind == Allocation::Kind::mapping) return allocation.access.get(device);
  if (allocation.kind == Allocation::Kind::pool)
    return driver.pools().access(allocation.pool).get(device);
  return !allocation.is_on_device() || allocation.device == device
             ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE
             : CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE;
}

/// Writes the attribute of `address`; null values when `allocation` is null. False when this
/// allocation has no such attribute: then a null value is written.
bool write_attribute(Driver& driver, CUpointer_attribute attribute, const Allocation* allocation,
                     std::uintptr_t address, void* data) {
  const bool known = allocation != nullptr;
  switch (static_cast<int>(attribute)) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      put(data, known ? allocation->context : nullptr);
      return known && allocation->context != nullptr;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      put(data, known ? memory_type(*allocation) : 0U);
      return known;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      put(data, known ? CUdeviceptr{address} : CUdeviceptr{0});
      return known;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER: {
      const bool has = known && !allocation->is_on_device();
      put(data, has ? std::bit_cast<void*>(address) : nullptr);
      return has;
    }
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      put(data, known ? static_cast<unsigned long long>(allocation->buffer_id) : 0ULL);
      return known;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      put(data, known && allocation->kind == Allocation::Kind::managed ? 1U : 0U);
      return known;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      put(data, known ? allocation->device : kNoDevice);
      return known;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      put(data, known && allocation->kind == Allocation::Kind::device ? 1U : 0U);
      return known;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      put(data, known ? CUdeviceptr{range_of(*allocation).first} : CUdeviceptr{0});
      return known;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      put(data, known ? range_of(*allocation).second : std::size_t{0});
      return known;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      put(data, known ? CUdeviceptr{allocation->base} : CUdeviceptr{0});
      return known;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      put(data, known ? allocation->bytes : std::size_t{0});
      return known;
    case CU_POINTER_ATTRIBUTE_MAPPED: put(data, known ? 1U : 0U); return known;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      put(data, std::uint64_t{CU_MEM_HANDLE_TYPE_NONE});
      return known;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      put(data, known && allocation->syncs_copies ? 1U : 0U);
      return known;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      put(data, known ? allocation->pool : nullptr);
      return known;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      put(data, known ? access_flags(driver, *allocation, driver.contexts().current().device) : 0U);
      return known;
  }
  fail_not_supported(fmt::format("cuPointerGetAttribute({})", static_cast<int>(attribute)).c_str());
}

}  // namespace

CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
  return call([&](Driver& driver) {
    driver.contexts().current();
    const AllocationPtr allocation = driver.memory().find(address);
    require(allocation != nullptr, CUDA_ERROR_NOT_FOUND);
    // For a mapping this is its own range, unlike the attributes.
    if (base != nullptr) *base = allocation->base;
    if (bytes != nullptr) *bytes = allocation->bytes;
  });
}

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  return call([&](Driver& driver) {
    require(data != nullptr, CUDA_ERROR_INVALID_VALUE);
    const AllocationPtr allocation = driver.memory().find(address);
    require(allocation != nullptr, CUDA_ERROR_INVALID_VALUE);
    require(write_attribute(driver, attribute, allocation.get(), address, data),
            CUDA_ERROR_INVALID_VALUE);
  });
}

CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute* attributes, void** data,
                                CUdeviceptr address) {
  return call([&](Driver& driver) {
    require(count > 0 && attributes != nullptr && data != nullptr, CUDA_ERROR_INVALID_VALUE);
    const AllocationPtr allocation = driver.memory().find(address);
    for (unsigned i = 0; i < count; ++i) {
      require(data[i] != nullptr, CUDA_ERROR_INVALID_VALUE);
      write_attribute(driver, attributes[i], allocation.get(), address, data[i]);
    }
  });
}

CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute,
                               CUdeviceptr address) {
  return call([&](Driver& driver) {
    const AllocationPtr allocation = driver.memory().find(address);
    require(value != nullptr && allocation != nullptr, CUDA_ERROR_INVALID_VALUE);
    if (attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
      fail_not_supported(
          fmt::format("cuPointerSetAttribute({})", static_cast<int>(attribute)).c_str());
    // Memory that belongs to no context: its context asks (cuCtxSetFlags), as UCX does.
    require(allocation->context != nullptr, CUDA_ERROR_INVALID_VALUE);
    allocation->syncs_copies = *static_cast<const unsigned*>(value) != 0;
  });
}

// Managed memory stays in host memory; advice does not move it.
CUresult cuMemRangeGetAttribute(void* data, size_t size, CUmem_range_attribute attribute,
                                CUdeviceptr address, size_t bytes) {
  return call([&](Driver& driver) {
    require(data != nullptr && size == sizeof(int), CUDA_ERROR_INVALID_VALUE);
    const AllocationPtr allocation = driver.memory().find(address);
    require(allocation && allocation->kind == Allocation::Kind::managed &&
                bytes <= allocation->base + allocation->bytes - address,
            CUDA_ERROR_INVALID_VALUE);
    switch (static_cast<int>(attribute)) {
      case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
      case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION: put(data, int{CU_DEVICE_INVALID}); return;
    }
    fail_not_supported(
        fmt::format("cuMemRangeGetAttribute({})", static_cast<int>(attribute)).c_str());
  });
}
