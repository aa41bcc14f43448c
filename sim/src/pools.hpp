// Memory pools: those of programs, and the default one of each GPU.
//
// Pools owns them, guarded by the driver's lock. A pool that was destroyed lives on, unusable,
// while memory of it does.
#pragma once

#include <cstddef>
#include <vector>

#include "cuda_api.hpp"
#include "handle_table.hpp"
#include "memory.hpp"

namespace polypath::sim {

/// Memory of a device that is allocated in the order of streams.
struct Pool {
  int device = 0;
  Access access;
  bool is_destroyed = false;  ///< what was allocated from it stays
};

class Pools {
 public:
  /// Makes the default pools. `memory` must outlive this.
  Pools(const Memory& memory, std::size_t gpu_count);

  /// One that may be used by its GPU alone.
  CUmemoryPool create(int device);
  /// Memory of it stays. Failure INVALID_VALUE for a default pool, or when it was destroyed.
  void destroy(CUmemoryPool handle);
  /// Removes it if it was destroyed and nothing of it is left.
  void forget(CUmemoryPool handle);

  /// One that was not destroyed. Failure INVALID_VALUE when it was, or is none.
  [[nodiscard]] Pool& get(CUmemoryPool handle) const;
  /// The access to memory of a pool, which may be destroyed.
  [[nodiscard]] const Access& access(CUmemoryPool handle) const {
    return table_.get(handle).access;
  }

  [[nodiscard]] CUmemoryPool default_pool(int device) const;
  /// Where cuMemAllocAsync takes memory from.
  [[nodiscard]] CUmemoryPool current(int device) const;
  /// Failure INVALID_VALUE for a pool of another GPU.
  void set_current(int device, CUmemoryPool handle);

 private:
  const Memory& memory_;
  HandleTable<CUmemoryPool, Pool, 0x51B0> table_;
  std::vector<CUmemoryPool> default_pools_;  // by device
  std::vector<CUmemoryPool> current_pools_;  // by device
};

}  // namespace polypath::sim
