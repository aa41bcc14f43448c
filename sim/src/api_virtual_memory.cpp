// The C functions of virtual memory management (virtual_memory.hpp). It cannot be shared with other
// processes, and says so.
#include <bit>
#include <span>

#include "call.hpp"

using namespace polypath::sim;

CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* properties,
                                       CUmemAllocationGranularity_flags) {
  return call(
      [&](Driver& driver) { out(granularity) = driver.virtual_memory().granularity(properties); });
}

CUresult cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t alignment, CUdeviceptr,
                             unsigned long long flags) {
  return call([&](Driver& driver) {
    CUdeviceptr& result = out(address);
    require(flags == 0, CUDA_ERROR_INVALID_VALUE);
    result = driver.virtual_memory().reserve(bytes, alignment);
  });
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  return call([&](Driver& driver) { driver.virtual_memory().free(address, bytes); });
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                     const CUmemAllocationProp* properties, unsigned long long flags) {
  return call([&](Driver& driver) {
    CUmemGenericAllocationHandle& result = out(handle);
    result = driver.virtual_memory().create(bytes, properties, flags);
  });
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  return call([&](Driver& driver) { driver.virtual_memory().release(handle); });
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  return call([&](Driver& driver) {
    CUmemGenericAllocationHandle& result = out(handle);
    result = driver.virtual_memory().retain(std::bit_cast<CUdeviceptr>(address));
  });
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties,
                                                CUmemGenericAllocationHandle handle) {
  return call(
      [&](Driver& driver) { out(properties) = driver.virtual_memory().properties(handle); });
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags) {
  return call([&](Driver& driver) {
    require(flags == 0 && offset == 0, CUDA_ERROR_INVALID_VALUE);
    driver.virtual_memory().map(address, bytes, handle);
  });
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  return call([&](Driver& driver) { driver.virtual_memory().unmap(address, bytes); });
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* accesses,
                        size_t count) {
  return call([&](Driver& driver) {
    require(accesses != nullptr && count > 0, CUDA_ERROR_INVALID_VALUE);
    driver.virtual_memory().set_access(address, bytes, std::span(accesses, count));
  });
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location,
                        CUdeviceptr address) {
  return call([&](Driver& driver) {
    unsigned long long& result = out(flags);
    result = driver.virtual_memory().access(address, out(location));
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
