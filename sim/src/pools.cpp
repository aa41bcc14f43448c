#include "pools.hpp"

#include <memory>
#include <utility>

#include "failure.hpp"

namespace polypath::sim {

Pools::Pools(const Memory& memory, std::size_t gpu_count) : memory_(memory) {
  for (std::size_t device = 0; device < gpu_count; ++device)
    default_pools_.push_back(create(static_cast<int>(device)));
  current_pools_ = default_pools_;
}

CUmemoryPool Pools::create(int device) {
  auto pool = std::make_unique<Pool>();
  pool->device = device;
  pool->access.by_device[device] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return table_.add(std::move(pool));
}

void Pools::destroy(CUmemoryPool handle) {
  Pool& pool = get(handle);
  const auto index = static_cast<std::size_t>(pool.device);
  require(handle != default_pools_[index], CUDA_ERROR_INVALID_VALUE);
  if (current_pools_[index] == handle) current_pools_[index] = default_pools_[index];
  pool.is_destroyed = true;
  forget(handle);
}

void Pools::forget(CUmemoryPool handle) {
  const Pool* const pool = table_.find(handle);
  if (pool == nullptr || !pool->is_destroyed) return;
  const auto is_of_pool = [handle](const Allocation& each) { return each.pool == handle; };
  if (memory_.find_if(is_of_pool) == nullptr) table_.remove(handle);
}

Pool& Pools::get(CUmemoryPool handle) const {
  Pool& pool = table_.get(handle, CUDA_ERROR_INVALID_VALUE);
  require(!pool.is_destroyed, CUDA_ERROR_INVALID_VALUE);
  return pool;
}

CUmemoryPool Pools::default_pool(int device) const {
  return default_pools_[static_cast<std::size_t>(device)];
}

CUmemoryPool Pools::current(int device) const {
  return current_pools_[static_cast<std::size_t>(device)];
}

void Pools::set_current(int device, CUmemoryPool handle) {
  require(get(handle).device == device, CUDA_ERROR_INVALID_VALUE);
  current_pools_[static_cast<std::size_t>(device)] = handle;
}

}  // namespace polypath::sim
