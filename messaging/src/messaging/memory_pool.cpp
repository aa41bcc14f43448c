#include "messaging/memory_pool.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "base/error.hpp"
#include "comm/rank_error.hpp"
#include "driver/check.hpp"

namespace polypath {
namespace {

using device::pool_view;
using device::shared_pool_view;

constexpr std::uint32_t kUsualSlabLog2 = 17;
constexpr std::uint32_t kUsualSlabs = 64;  // a pool has, or smaller ones
constexpr std::uint32_t kUsualReturns = 4096;
constexpr std::uint32_t kMinReturns = 128;  // a warp's in a segment, and four segments
constexpr std::uint32_t kMaxReturns = 1U << 20;
constexpr std::uint64_t kMinBytes = std::uint64_t{64} << 10;

/// What blocks are aligned to at most; the driver promises 256.
constexpr std::uint64_t kAlignment = pool_view::kLargest;

constexpr std::uint64_t round_up(std::uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::uint32_t usual_slab_log2(std::uint64_t bytes) {
  std::uint32_t log2 = kUsualSlabLog2;
  while (log2 > pool_view::kMinSlabLog2 && bytes >> log2 < kUsualSlabs) --log2;
  return log2;
}

}  // namespace

PoolShape shape_of(const polypath_pool_options* options) {
  if (options == nullptr) throw InvalidArgument("options is null");
  for (const std::uint32_t reserved : options->reserved)
    if (reserved != 0) throw InvalidArgument("options->reserved is not 0");
  const std::uint64_t bytes = options->bytes;
  if (bytes < kMinBytes || bytes > pool_view::kMaxBytes)
    throw InvalidArgument(fmt::format("options->bytes is {}: a pool has {} bytes to {}", bytes,
                                      kMinBytes, pool_view::kMaxBytes));
  const std::uint32_t slab_bytes = options->slab_bytes;
  PoolShape shape;
  shape.slab_log2 = slab_bytes == 0 ? usual_slab_log2(bytes)
                                    : static_cast<std::uint32_t>(std::countr_zero(slab_bytes));
  if ((slab_bytes != 0 && !std::has_single_bit(slab_bytes)) ||
      shape.slab_log2 < pool_view::kMinSlabLog2 || shape.slab_log2 > pool_view::kMaxSlabLog2)
    throw InvalidArgument(
        fmt::format("options->slab_bytes is {}: it is to be a power of two, {} to {}", slab_bytes,
                    1U << pool_view::kMinSlabLog2, 1U << pool_view::kMaxSlabLog2));
  shape.slabs = static_cast<std::uint32_t>((bytes + (std::uint64_t{1} << shape.slab_log2) - 1) >>
                                           shape.slab_log2);
  if (shape.slabs < pool_view::kClasses)
    throw InvalidArgument(fmt::format(
        "options->bytes is {}: the pool is too small, it is to have {} slabs of {} bytes, one for "
        "each size",
        bytes, pool_view::kClasses, std::uint64_t{1} << shape.slab_log2));
  shape.returns = options->returns == 0 ? kUsualReturns : options->returns;
  if (!std::has_single_bit(shape.returns) || shape.returns < kMinReturns ||
      shape.returns > kMaxReturns)
    throw InvalidArgument(
        fmt::format("options->returns is {}: it is to be a power of two, {} to {}", shape.returns,
                    kMinReturns, kMaxReturns));
  return shape;
}

MemoryPool::MemoryPool(Communicator& communicator, const PoolShape& shape)
    : communicator_(communicator),
      layout_(device::layout_of_pool(shape.slabs, shape.slab_log2)),
      stream_(communicator.driver(), communicator.context()) {
  communicator.check();
}

MemoryPool::~MemoryPool() {
  const CudaDriver& driver = communicator_.driver();
  const CurrentContext current(driver, communicator_.context(), std::nothrow);
  if (device_ != 0) POLYPATH_WARN(driver, mem_free(device_));
}

void MemoryPool::release() {
  if (returns_) returns_->release();
  returns_.reset();
  if (symmetric_) communicator_.free(std::exchange(symmetric_, {}));
}

std::unique_ptr<MemoryPool> MemoryPool::local(Communicator& communicator, const PoolShape& shape) {
  std::unique_ptr<MemoryPool> pool(new MemoryPool(communicator, shape));
  const CudaDriver& driver = communicator.driver();
  const CurrentContext current(driver, communicator.context());
  const device::pool_layout& layout = pool->layout_;
  POLYPATH_CHECK(driver, mem_alloc(&pool->device_, round_up(layout.bytes) + kAlignment));
  const CUdeviceptr begin = round_up(pool->device_);
  POLYPATH_CHECK(driver, memset_d8_async(begin + layout.zeros, 0, layout.bytes - layout.zeros,
                                         pool->stream_.get()));
  POLYPATH_CHECK(driver, stream_synchronize(pool->stream_.get()));
  pool->view_ = layout.view_at(reinterpret_cast<unsigned char*>(begin));
  return pool;
}

std::unique_ptr<MemoryPool> MemoryPool::shared(Communicator& communicator, const PoolShape& shape) {
  const int ranks = communicator.size();
  if (ranks > shared_pool_view::kMaxRanks)
    throw NotSupported(fmt::format("{} ranks share no pool: {} do at the most", ranks,
                                   shared_pool_view::kMaxRanks));
  std::vector<PoolShape> all(static_cast<std::size_t>(ranks), shape);
  communicator.exchange(std::as_bytes(std::span(&shape, 1)),
                        std::as_writable_bytes(std::span(all)));
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (!(all[rank] == all.front()))
      throw CommunicatorError(
          fmt::format("the pools of rank 0 and rank {} are not the same: options differ", rank));
  std::unique_ptr<MemoryPool> pool(new MemoryPool(communicator, shape));
  polypath_queue_options queues{};
  queues.item_bytes = sizeof(std::uint32_t);
  queues.capacity = shape.returns;
  pool->returns_ = QueueSet::connected_each(communicator, shape_of(&queues));
  // After the pool the views of the queues.
  const std::uint64_t views = round_up(pool->layout_.bytes);
  const std::uint64_t of_side = sizeof(device::queue_view) * static_cast<std::uint64_t>(ranks);
  pool->symmetric_ =
      communicator.alloc(views + round_up(2 * of_side) + kAlignment, SymmetricUse::peers);
  const SymmetricMemory& memory = pool->symmetric_;
  // Each rank aligns its own pool; the others' memory may be mapped to other addresses here.
  const std::uint64_t skipped = round_up(memory.local()) - memory.local();
  std::vector<std::uint64_t> skips(all.size());
  communicator.exchange(std::as_bytes(std::span(&skipped, 1)),
                        std::as_writable_bytes(std::span(skips)));
  const auto begin_of = [&](int rank) {
    return reinterpret_cast<unsigned char*>(memory.address(rank) +
                                            skips[static_cast<std::size_t>(rank)]);
  };
  shared_pool_view& view = pool->shared_;
  pool->view_ = pool->layout_.view_at(begin_of(communicator.rank()));
  view.own = pool->view_;
  view.rank = communicator.rank();
  view.ranks = ranks;
  for (int rank = 0; rank < ranks; ++rank)
    view.blocks[rank] = pool->layout_.view_at(begin_of(rank)).blocks;
  const auto* const both =
      reinterpret_cast<const device::queue_view*>(begin_of(communicator.rank()) + views);
  view.to_owner = both;
  view.from_holder = both + ranks;
  Opened opened;
  opened.problem.catch_from([&] { pool->fill_queue_views(memory.local() + skipped + views); });
  std::vector<Opened> others(all.size());
  communicator.exchange(std::as_bytes(std::span(&opened, 1)),
                        std::as_writable_bytes(std::span(others)));
  throw_first_error(others, "pools");
  return pool;
}

void MemoryPool::fill_queue_views(CUdeviceptr to) {
  std::vector<device::queue_view> views;
  for (const auto side : {POLYPATH_QUEUE_PRODUCER, POLYPATH_QUEUE_CONSUMER})
    for (int rank = 0; rank < communicator_.size(); ++rank)
      returns_->view(rank, side, &views.emplace_back(), sizeof(device::queue_view));
  const CudaDriver& driver = communicator_.driver();
  const CurrentContext current(driver, communicator_.context());
  POLYPATH_CHECK(driver, memcpy_async(to, reinterpret_cast<CUdeviceptr>(views.data()),
                                      views.size() * sizeof(device::queue_view), stream_.get()));
  POLYPATH_CHECK(driver, stream_synchronize(stream_.get()));
}

void MemoryPool::view(void* view, std::size_t bytes) const {
  if (bytes == sizeof view_) {
    std::memcpy(view, &view_, sizeof view_);
  } else if (bytes == sizeof shared_ && returns_ != nullptr) {
    std::memcpy(view, &shared_, sizeof shared_);
  } else if (bytes == sizeof shared_) {
    throw InvalidArgument("view is a shared_pool_view, and the pool is this rank's alone");
  } else {
    throw InvalidArgument(fmt::format(
        "bytes is {}, not the {} of polypath::device::pool_view or the {} of shared_pool_view: the "
        "headers are of another version",
        bytes, sizeof view_, sizeof shared_));
  }
}

template <typename T>
std::vector<T> MemoryPool::read(const T* from, std::size_t count) {
  std::vector<T> values(count);
  const CudaDriver& driver = communicator_.driver();
  POLYPATH_CHECK(
      driver, memcpy_async(reinterpret_cast<CUdeviceptr>(values.data()),
                           reinterpret_cast<CUdeviceptr>(from), count * sizeof(T), stream_.get()));
  POLYPATH_CHECK(driver, stream_synchronize(stream_.get()));
  return values;
}

nlohmann::json MemoryPool::report() {
  const CurrentContext current(communicator_.driver(), communicator_.context());
  device::pool_counts sum{};
  for (const device::pool_counts& shard :
       read(view_.counts, std::size_t{1} << layout_.shards_log2)) {
    sum.allocated += shard.allocated;
    sum.freed += shard.freed;
    sum.failed += shard.failed;
    sum.refused += shard.refused;
  }
  std::uint64_t used = 0;
  std::vector<std::uint64_t> slabs(pool_view::kClasses, 0);
  std::vector<std::uint64_t> held(pool_view::kClasses, 0);
  for (const std::uint32_t gate : read(view_.gates, layout_.slabs)) {
    const std::uint32_t of_class = gate >> pool_view::kGateShift;
    if (of_class == 0 || of_class > pool_view::kClasses) continue;
    const std::uint32_t most = 1U << (layout_.slab_log2 - pool_view::kMinLog2 - (of_class - 1));
    ++used;
    ++slabs[of_class - 1];
    // A kernel that runs may have raised it in vain.
    held[of_class - 1] += std::min(gate & pool_view::kGateCount, most);
  }
  nlohmann::json classes = nlohmann::json::array();
  std::uint64_t blocks = 0;
  std::uint64_t bytes = 0;
  for (unsigned c = 0; c < pool_view::kClasses; ++c) {
    const std::uint64_t size = std::uint64_t{1} << (pool_view::kMinLog2 + c);
    classes.push_back({{"bytes", size}, {"slabs", slabs[c]}, {"held", held[c]}});
    blocks += held[c];
    bytes += held[c] * size;
  }
  const std::uint64_t slab_bytes = std::uint64_t{1} << layout_.slab_log2;
  return {{"bytes", layout_.slabs * slab_bytes},
          {"slab_bytes", slab_bytes},
          {"slabs", layout_.slabs},
          {"shared", returns_ != nullptr},
          {"allocated", sum.allocated},
          {"freed", sum.freed},
          {"failed", sum.failed},
          {"refused", sum.refused},
          {"held_blocks", blocks},
          {"held_bytes", bytes},
          {"high_water_bytes", used * slab_bytes},
          {"classes", classes}};
}

}  // namespace polypath
