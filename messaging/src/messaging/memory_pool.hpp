// A pool of one rank: its memory, the views of its kernels, how it went.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "comm/communicator.hpp"
#include "driver/resources.hpp"
#include "messaging/queue_set.hpp"
#include "polypath/device/pool_view.hpp"
#include "polypath/messaging/pool.h"

namespace polypath {

/// The layout of a pool, from the options of its creator.
struct PoolShape {
  std::uint32_t slabs = 0;
  std::uint32_t slab_log2 = 0;
  std::uint32_t returns = 0;

  bool operator==(const PoolShape&) const = default;
};

/// Throws InvalidArgument, naming what is wrong. Pure.
PoolShape shape_of(const polypath_pool_options* options);

/// Throws InvalidArgument for what is wrong with an argument; what the communicator throws.
class MemoryPool {
 public:
  /// In the memory of this rank's GPU. `communicator` must outlive it, here and below.
  static std::unique_ptr<MemoryPool> local(Communicator& communicator, const PoolShape& shape);
  /// Collective.
  static std::unique_ptr<MemoryPool> shared(Communicator& communicator, const PoolShape& shape);
  /// Frees what is not symmetric memory.
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  /// Collective where the creation was; nothing else is called after it.
  void release();

  /// Writes the pool_view or shared_pool_view of `bytes` bytes to `view`.
  void view(void* view, std::size_t bytes) const;
  [[nodiscard]] nlohmann::json report();

 private:
  MemoryPool(Communicator& communicator, const PoolShape& shape);
  void fill_queue_views(CUdeviceptr to);
  template <typename T>
  [[nodiscard]] std::vector<T> read(const T* from, std::size_t count);

  Communicator& communicator_;
  device::pool_layout layout_;
  CUdeviceptr device_ = 0;
  SymmetricMemory symmetric_;
  std::unique_ptr<QueueSet> returns_;  ///< from each rank to each
  device::pool_view view_{};
  device::shared_pool_view shared_{};
  Stream stream_;
};

}  // namespace polypath
