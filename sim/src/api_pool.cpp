// Memory pools: those of the program and the default one of each device; allocation and release in
// the order of a stream.
#include "call.hpp"
#include "device_traits.hpp"

using namespace polypath::sim;

namespace {

/// The device of a location; only devices may be given here.
int device_of(const Driver& driver, const CUmemLocation& location) {
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
    allocation.device = driver.pool(allocation.pool).device;
    allocation.location = polypath::MemoryId::gpu(allocation.device);
    *address = driver.memory.add(std::move(allocation))->base;
    driver.streams().enqueue(stream, {});
    driver.devices().spend(driver.node.costs.call_us);
  });
}

}  // namespace

Pool& Driver::pool(CUmemoryPool handle) const {
  Pool& pool = pools.get(handle, CUDA_ERROR_INVALID_VALUE);
  require(!pool.is_destroyed, CUDA_ERROR_INVALID_VALUE);
  return pool;
}

void Driver::forget_pool(CUmemoryPool handle) {
  const Pool* const pool = pools.find(handle);
  if (pool == nullptr || !pool->is_destroyed) return;
  const auto is_of_pool = [handle](const Allocation& each) { return each.pool == handle; };
  if (memory.find_if(is_of_pool) == nullptr) pools.remove(handle);
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) {
  return call([&](Driver& driver) {
    out(pool) = driver.default_pools[static_cast<std::size_t>(check_device(driver.node, device))];
  });
}

CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice device) {
  return call([&](Driver& driver) {
    out(pool) = driver.current_pools[static_cast<std::size_t>(check_device(driver.node, device))];
  });
}

CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
  return call([&](Driver& driver) {
    const auto index = static_cast<std::size_t>(check_device(driver.node, device));
    require(driver.pool(pool).device == device, CUDA_ERROR_INVALID_VALUE);
    driver.current_pools[index] = pool;
  });
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
    auto pool = std::make_unique<Pool>();
    pool->device = check_device(driver.node, properties->location.id);
    pool->access.by_device[pool->device] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    result = driver.pools.add(std::move(pool));
  });
}

// What was allocated from it stays until it is freed.
CUresult cuMemPoolDestroy(CUmemoryPool handle) {
  return call([&](Driver& driver) {
    Pool& pool = driver.pool(handle);
    const auto index = static_cast<std::size_t>(pool.device);
    require(handle != driver.default_pools[index], CUDA_ERROR_INVALID_VALUE);
    if (driver.current_pools[index] == handle)
      driver.current_pools[index] = driver.default_pools[index];
    pool.is_destroyed = true;
    driver.forget_pool(handle);
  });
}

CUresult cuMemAllocAsync(CUdeviceptr* address, size_t bytes, CUstream stream) {
  return allocate(address, bytes, stream, [](Driver& driver, const Stream& on) {
    return driver.current_pools[static_cast<std::size_t>(on.device)];
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
    const AllocationPtr allocation = driver.memory.find(address);
    require(allocation && allocation->base == address && allocation->kind == Allocation::Kind::pool,
            CUDA_ERROR_INVALID_VALUE);
    // No later call may use the address; the memory is free when the stream gets here.
    driver.memory.remove(allocation);
    Operation operation;
    operation.effect = [&driver, allocation] {
      driver.memory.release(allocation);
      driver.forget_pool(allocation->pool);
    };
    driver.streams().enqueue(stream, std::move(operation));
    driver.devices().spend(driver.node.costs.call_us);
  });
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool handle,
                            CUmemLocation* location) {
  return call([&](Driver& driver) {
    const Pool& pool = driver.pool(handle);
    out(flags) = pool.access.get(device_of(driver, out(location)));
  });
}

CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* accesses, size_t count) {
  return call([&](Driver& driver) {
    Pool& pool = driver.pool(handle);
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
