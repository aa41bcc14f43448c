// The C API of pools (messaging/pool.h), a thin shell around MemoryPool.
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "comm/comm_handle.hpp"
#include "comm/rank_threads.hpp"
#include "core/c_boundary.hpp"
#include "messaging/memory_pool.hpp"
#include "polypath/messaging/pool.h"

struct polypath_pool {
  std::unique_ptr<polypath::MemoryPool> pool;
};

using namespace polypath;

namespace {

polypath_pool* pool_handle(std::unique_ptr<MemoryPool> pool) {
  auto handle = std::make_unique<polypath_pool>();
  handle->pool = std::move(pool);
  return handle.release();
}
void destroy_pool(polypath_pool* pool) {
  const std::unique_ptr<polypath_pool> handle(pool);
  handle->pool->release();
}

}  // namespace

polypath_status polypath_pool_create(polypath_comm* comm, const polypath_pool_options* options,
                                     polypath_pool** pool) {
  return guarded([&] {
    require(pool != nullptr, "pool is null");
    *pool = pool_handle(MemoryPool::local(communicator_of(comm), shape_of(options)));
  });
}

polypath_status polypath_pool_create_shared(polypath_comm* comm,
                                            const polypath_pool_options* options,
                                            polypath_pool** pool) {
  return guarded([&] {
    require(pool != nullptr, "pool is null");
    *pool = pool_handle(MemoryPool::shared(communicator_of(comm), shape_of(options)));
  });
}

polypath_status polypath_pool_create_shared_all(polypath_comm* const* comms, int ranks,
                                                const polypath_pool_options* options,
                                                polypath_pool** pools) {
  return guarded([&] {
    const PoolShape shape = shape_of(options);
    require_all(comms, ranks);
    require(pools != nullptr, "pools is null");
    std::vector<std::unique_ptr<MemoryPool>> created(static_cast<std::size_t>(ranks));
    on_threads(ranks, [&](std::size_t i) {
      created[i] = MemoryPool::shared(communicator_of(comms[i]), shape);
    });
    for (std::size_t i = 0; i < created.size(); ++i) pools[i] = pool_handle(std::move(created[i]));
  });
}

polypath_status polypath_pool_destroy(polypath_pool* pool) {
  return guarded([&] {
    require(pool != nullptr, "pool is null");
    destroy_pool(pool);
  });
}

polypath_status polypath_pool_destroy_all(polypath_pool* const* pools, int ranks) {
  return guarded([&] {
    require_handles(pools, ranks, "pools");
    on_threads(ranks, [&](std::size_t i) { destroy_pool(pools[i]); });
  });
}

polypath_status polypath_pool_view(const polypath_pool* pool, void* view, size_t bytes) {
  return guarded([&] {
    require(pool != nullptr, "pool is null");
    require(view != nullptr, "view is null");
    pool->pool->view(view, bytes);
  });
}

size_t polypath_pool_view_bytes(int shared) {
  return shared != 0 ? sizeof(device::shared_pool_view) : sizeof(device::pool_view);
}

polypath_status polypath_pool_report(polypath_pool* pool, char** json) {
  return guarded([&] {
    require(pool != nullptr, "pool is null");
    give(pool->pool->report(), json);
  });
}
