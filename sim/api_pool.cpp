// Memory pools: the default pool of each device, allocation and release in the order of a stream.
#include "call.hpp"

using namespace polypath::sim;

namespace {

/// The device of a location; only devices may be given here.
int device_of(const Driver& driver, const CUmemLocation& location) {
  require(location.type == CU_MEM_LOCATION_TYPE_DEVICE, CUDA_ERROR_INVALID_VALUE);
  return driver.check_device(location.id);
}

}  // namespace

CUresult cuMemAllocAsync(CUdeviceptr* address, size_t bytes, CUstream handle) {
  return call([&](Driver& driver) {
    driver.current_context();
    driver.wait_for_room(handle);
    Stream& stream = driver.stream(handle);
    Driver::require_no_capture(stream);
    out(address);
    require(bytes > 0, CUDA_ERROR_INVALID_VALUE);
    Allocation wanted;
    wanted.kind = Allocation::Kind::pool;
    wanted.bytes = bytes;
    wanted.device = stream.device;
    wanted.location = polypath::MemoryId::gpu(stream.device);
    wanted.pool = driver.default_pools[static_cast<std::size_t>(stream.device)];
    *address = driver.memory.add(std::move(wanted))->base;
    driver.enqueue(stream, {});
    driver.spend(driver.node.costs.call_us);
  });
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream handle) {
  return call([&](Driver& driver) {
    driver.current_context();
    driver.wait_for_room(handle);
    Stream& stream = driver.stream(handle);
    Driver::require_no_capture(stream);
    const AllocationPtr allocation = driver.memory.find(address);
    require(allocation && allocation->base == address && allocation->kind == Allocation::Kind::pool,
            CUDA_ERROR_INVALID_VALUE);
    // No later call may use the address; the memory is free when the stream gets here.
    driver.memory.remove(allocation);
    Operation operation;
    operation.effect = [&driver, allocation] { driver.memory.give_back(allocation); };
    driver.enqueue(stream, std::move(operation));
    driver.spend(driver.node.costs.call_us);
  });
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool handle,
                            CUmemLocation* location) {
  return call([&](Driver& driver) {
    const Pool& pool = driver.pools.get(handle, CUDA_ERROR_INVALID_VALUE);
    const int device = device_of(driver, out(location));
    const auto given = pool.access.find(device);
    out(flags) = device == pool.device        ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                 : given == pool.access.end() ? CU_MEM_ACCESS_FLAGS_PROT_NONE
                                              : given->second;
  });
}

CUresult cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* wanted, size_t count) {
  return call([&](Driver& driver) {
    Pool& pool = driver.pools.get(handle, CUDA_ERROR_INVALID_VALUE);
    for (std::size_t i = 0; i < count; ++i) {
      const CUmemAccessDesc& access = wanted[i];
      const int device = device_of(driver, access.location);
      if (device == pool.device) {
        require(access.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CUDA_ERROR_INVALID_VALUE);
      } else if (access.flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) {
        pool.access.erase(device);
      } else {
        require(access.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CUDA_ERROR_INVALID_VALUE);
        require(driver.has_peer_link(device, pool.device), CUDA_ERROR_INVALID_DEVICE);
        pool.access[device] = access.flags;
      }
    }
  });
}
