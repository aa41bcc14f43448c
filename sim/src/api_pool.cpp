// Memory pools: those of the program and the default one of each device; allocation and release in
// the order of a stream.
#include "call.hpp"
#include "device_traits.hpp"

using namespace polypath::sim;

namespace {

/// The device of a location; only devices may be given here.
int device_of(Driver& driver, const CUmemLocation& location) {
  require(location.type == CU_MEM_LOCATION_TYPE_DEVICE, CUDA_ERROR_INVALID_VALUE);
  return check_device(driver.node, location.id);
}

/// From the pool that `choose(driver, stream)` returns.
template <typename Choose>
CUresult allocate(CUdeviceptr* address, std::size_t bytes, CUstream handle, const Choose& choose) {
  return call([&](Driver& driver) {
    driver.contexts().current();
    driver.streams().wait_for_room(handle);
    Stream& stream = driver.streams().get(handle);
    stream.require_no_capture();
    out(address);
    require(bytes > 0, CUDA_ERROR_INVALID_VALUE);
    Allocation allocation;
    allocation.kind = Allocation::Kind::pool;
    allocation.bytes = bytes;
    allocation.pool = choose(driver, stream);
    allocation.device = driver.pools().get(allocation.pool).device;
    allocation.location = polypath::MemoryId::gpu(allocation.device);
    *address = driver.memory().add(std::move(allocation))->base;
    driver.streams().enqueue(stream, {});
    driver.devices().spend(driver.node.costs.call_us);
  });
}

}  // namespace

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) {
  return call([&](Driver& driver) {
    out(pool) = driver.pools().default_pool(check_device(driver.node, device));
  });
}

CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice device) {
  return call([&](Driver& driver) {
    out(pool) = driver.pools().current(check_device(driver.node, device));
  });
}

CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
  return call(
      [&](Driver& driver) { driver.pools().set_current(check_device(driver.node, device), pool); });
}

CUresult cuMemPoolCreate(CUmemoryPool* handle, const CUmemPoolProps* properties) {
  return call([&](Driver& driver) {
    CUmemoryPool& result = out(handle);
    require(properties != nullptr && properties->allocType == CU_MEM_ALLOCATION_TYPE_PINNED,
            CUDA_ERROR_INVALID_VALUE);
    if (properties->handleTypes != CU_MEM_HANDLE_TYPE_NONE)
      fail_not_supported("cuMemPoolCreate of a pool for other processes");
    if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
      fail_not_supported("cuMemPoolCreate of host memory");
    result = driver.pools().create(check_device(driver.node, properties->location.id));
  });
}

// What was allocated from it stays until it is freed.
CUresult cuMemPoolDestroy(CUmemoryPool handle) {
  return call([&](Driver& driver) { driver.pools().destroy(handle); });
}

CUresult cuMemAllocAsync(CUdeviceptr* address, size_t bytes, CUstream stream) {
  return allocate(address, bytes, stream, [](Driver& driver, const Stream& on) {
    return driver.pools().current(on.device);
  });
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* address, size_t bytes, CUmemoryPool pool,
                                 CUstream stream) {
  return allocate(address, bytes, stream, [pool](Driver&, const Stream&) { return pool; });
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream handle) {
  return call([&](Driver& driver) {
    driver.contexts().current();
    driver.streams().wait_for_room(handle);
    Stream& stream = driver.streams().get(handle);
    stream.require_no_capture();
    const AllocationPtr allocation = driver.memory().find(address);
    require(allocation && allocation->base == address && allocation->kind == Allocation::Kind::pool,
            CUDA_ERROR_INVALID_VALUE);
    // No later call may use the address; the memory is free when the stream gets here.
    driver.memory().remove(allocation);
    Operation operation;
    operation.effect = [&deallocator = driver.deallocator(), allocation] {
      deallocator.reclaim(allocation);
    };
    driver.streams().enqueue(stream, std::move(operation));
    driver.devices().spend(driver.node.costs.call_us);
  });
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool handle,
                            CUmemLocation* location) {
  return call([&](Driver& driver) {
    const Pool& pool = driver.pools().get(handle);
    out(flags) = pool.access.get(device_of(driver, out(location)));
  });
}

CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* accesses, size_t count) {
  return call([&](Driver& driver) {
    Pool& pool = driver.pools().get(handle);
    for (std::size_t i = 0; i < count; ++i) {
      const CUmemAccessDesc& access = accesses[i];
      const int device = device_of(driver, access.location);
      if (device == pool.device) {
        require(access.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CUDA_ERROR_INVALID_VALUE);
      } else if (access.flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) {
        pool.access.by_device.erase(device);
      } else {
        require(access.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CUDA_ERROR_INVALID_VALUE);
        require(has_peer_link(driver.node, device, pool.device), CUDA_ERROR_INVALID_DEVICE);
        pool.access.by_device[device] = access.flags;
      }
    }
  });
}
