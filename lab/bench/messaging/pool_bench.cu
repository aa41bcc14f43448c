// Kernels that allocate and free as fast as they can.
#include "polypath/device/pool.cuh"
#include "pool_bench.h"
#include "simt/platform.cuh"

namespace messaging_bench {

namespace device = polypath::device;
namespace simt = polypath::simt;

/// Blocks of one thread, and what it counts.
template <unsigned kHeld>
class Holder {
 public:
  static constexpr std::uint32_t kNone = device::pool_view::kNoBlock;

  SIMT_DEVICE explicit Holder(std::uint32_t seed)
      : own_(simt::block_index() * simt::block_size() + simt::thread_index()),
        random_((seed + own_) * 0x9E3779B9U + 1) {
    POLYPATH_UNROLL
    for (unsigned i = 0; i < kHeld; ++i) held_[i] = kNone;
  }
  SIMT_DEVICE std::uint32_t random() {
    random_ ^= random_ << 13;
    random_ ^= random_ >> 17;
    return random_ ^= random_ << 5;
  }
  /// All classes alike.
  SIMT_DEVICE static std::uint32_t bytes(std::uint32_t random) {
    return 64U << (random >> 8) % device::pool_view::kClasses;
  }
  SIMT_DEVICE std::uint32_t swap(unsigned place, std::uint32_t handle) {
    std::uint32_t before = kNone;
    POLYPATH_UNROLL
    for (unsigned i = 0; i < kHeld; ++i) {
      if (i != place) continue;
      before = held_[i];
      held_[i] = handle;
    }
    return before;
  }
  SIMT_DEVICE void count_free(device::status result, std::uint32_t handle) {
    if (handle == kNone) return;
    done_ += result == device::status::done ? 1 : 0;
    wrong_ += result == device::status::done ? 0 : 1;
  }
  SIMT_DEVICE void count_allocation(device::status result) {
    done_ += result == device::status::done ? 1 : 0;
    failed_ += result == device::status::done ? 0 : 1;
  }

  /// The whole block: words of this thread and this handle.
  SIMT_DEVICE void fill(const device::pool& pool, std::uint32_t handle) const {
    if (handle == kNone) return;
    for (std::uint32_t at = 0; at < device::pool::bytes_of(handle); at += 16)
      simt::store(reinterpret_cast<device::ll_packet*>(pool.address(handle) + at),
                  device::ll_packet{{own_, handle, at}, ~handle});
  }
  SIMT_DEVICE void check(const device::pool& pool, std::uint32_t handle) {
    if (handle == kNone) return;
    bool is_right = true;
    for (std::uint32_t at = 0; at < device::pool::bytes_of(handle); at += 16) {
      const auto block =
          simt::load(reinterpret_cast<const device::ll_packet*>(pool.address(handle) + at));
      is_right = is_right && block.data[0] == own_ && block.data[1] == handle &&
                 block.data[2] == at && block.lap == ~handle;
    }
    wrong_ += is_right ? 0 : 1;
  }
  SIMT_DEVICE void write(PoolTally* tally) const {
    device::fetch_add<device::device_scope>(&tally->done, done_);
    device::fetch_add<device::device_scope>(&tally->failed, failed_);
    device::fetch_add<device::device_scope>(&tally->wrong, wrong_);
  }

 private:
  std::uint32_t own_;
  std::uint32_t random_;
  std::uint32_t held_[kHeld];
  std::uint64_t done_ = 0;
  std::uint64_t failed_ = 0;
  std::uint64_t wrong_ = 0;
};

template <typename Team, bool kChecks>
SIMT_DEVICE void run_pool(const PoolRun& run) {
  constexpr unsigned kHeld = 8;
  const Team team{};
  const device::pool pool(run.view);
  Holder<kHeld> holder(run.seed);
  for (std::uint32_t round = 0; round < run.rounds; ++round) {
    const std::uint32_t random = holder.random();
    const unsigned place = random % kHeld;
    std::uint32_t handle = holder.swap(place, device::pool::kNoBlock);
    if (kChecks) holder.check(pool, handle);
    holder.count_free(pool.free(team, handle), handle);
    holder.count_allocation(pool.allocate(team, holder.bytes(random), handle));
    if (kChecks) holder.fill(pool, handle);
    holder.swap(place, handle);
  }
  for (unsigned place = 0; place < kHeld; ++place) {
    const std::uint32_t handle = holder.swap(place, device::pool::kNoBlock);
    if (kChecks) holder.check(pool, handle);
    holder.count_free(pool.free(team, handle), handle);
  }
  holder.write(run.tally);
}

SIMT_KERNEL(polypath_bench_pool_warps, 768, PoolRun run) { run_pool<simt::this_warp, false>(run); }
SIMT_KERNEL(polypath_bench_pool_threads, 768, PoolRun run) {
  run_pool<simt::this_thread, false>(run);
}
SIMT_KERNEL(polypath_bench_pool_checked, 768, PoolRun run) { run_pool<simt::this_warp, true>(run); }

#if defined(__CUDACC__)
/// CUDA's own malloc() and free() in kernels, one block a thread: its heap has 8 MB.
SIMT_KERNEL(polypath_bench_malloc, 768, PoolRun run) {
  Holder<1> holder(run.seed);
  std::uint64_t done = 0;
  std::uint64_t failed = 0;
  for (std::uint32_t round = 0; round < run.rounds; ++round) {
    void* const block = malloc(holder.bytes(holder.random()));
    if (block == nullptr) {
      ++failed;
      continue;
    }
    *static_cast<volatile std::uint32_t*>(block) = round;
    free(block);
    done += 2;
  }
  device::fetch_add<device::device_scope>(&run.tally->done, done);
  device::fetch_add<device::device_scope>(&run.tally->failed, failed);
}
#endif

}  // namespace messaging_bench
