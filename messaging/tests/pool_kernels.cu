// Kernels that allocate and free.
#include "polypath/device/pool.cuh"
#include "pool_kernels.h"
#include "simt/platform.cuh"

namespace polypath::test {

SIMT_DEVICE std::uint32_t mixed(std::uint32_t a, std::uint32_t b) {
  std::uint32_t value = a * 0x9E3779B9U + b * 0x85EBCA6BU + 0x27D4EB2FU;
  value = (value ^ value >> 16) * 0x7FEB352DU;
  value = (value ^ value >> 15) * 0x846CA68BU;
  return value ^ value >> 16;
}

struct Words4 {
  std::uint32_t words[4];
};

template <typename Group>
class PoolRun {
 public:
  SIMT_DEVICE explicit PoolRun(const PoolRow& row)
      : row_(row),
        pool_(row.view),
        own_(simt::block_index() * simt::block_size() + simt::thread_index()) {}

  SIMT_DEVICE void run() {
    const Group group{};
    std::uint32_t held[PoolRow::kHeld];
    for (unsigned i = 0; i < PoolRow::kHeld; ++i) held[i] = device::pool::kNoBlock;
    for (std::uint32_t round = 0; round < row_.rounds; ++round) {
      const std::uint32_t random = mixed(row_.seed + round, own_);
      const unsigned slot = random % PoolRow::kHeld;
      std::uint32_t handle = device::pool::kNoBlock;
      std::uint32_t leaves = device::pool::kNoBlock;
      for (unsigned i = 0; i < PoolRow::kHeld; ++i)
        if (i == slot) leaves = held[i];
      const bool asks = leaves == device::pool::kNoBlock && random % 7 != 0;
      const std::uint32_t bytes = asks ? size_of(random) : 0;
      touch(random);
      note(allocate(group, bytes, handle), asks && holds());
      take(handle, bytes);
      for (unsigned i = 0; i < PoolRow::kHeld; ++i)
        if (i == slot && leaves == device::pool::kNoBlock) held[i] = handle;
      if (row_.keeps != 0) continue;
      leave(leaves);
      note(free(group, leaves), leaves != device::pool::kNoBlock);
      for (unsigned i = 0; i < PoolRow::kHeld; ++i)
        if (i == slot && leaves != device::pool::kNoBlock) held[i] = device::pool::kNoBlock;
    }
    for (unsigned i = 0; i < PoolRow::kHeld; ++i) {
      if (row_.keeps != 0) {
        simt::store(row_.handles + own_ * PoolRow::kHeld + i, held[i]);
        continue;
      }
      leave(held[i]);
      note(free(group, held[i]), held[i] != device::pool::kNoBlock);
    }
  }

 private:
  SIMT_DEVICE std::uint32_t size_of(std::uint32_t random) const {
    if (row_.most != 0) return row_.least + (random >> 8) % (row_.most - row_.least + 1);
    const std::uint32_t largest = 64U << (random >> 4) % device::pool_view::kClasses;
    return largest - (random >> 12) % (largest / 2);
  }
  /// Whether this thread gets blocks.
  SIMT_DEVICE bool holds() const { return true; }
  /// Loads counters of blocks that others may hold: what is kept of that is old.
  SIMT_DEVICE void touch(std::uint32_t random) const {
    if (row_.counts == 0) return;
    const std::uint32_t step = row_.most <= 128 ? 128 : 256;
    const std::uint32_t blocks = (row_.view.slabs << row_.view.slab_log2) / step;
    for (std::uint32_t i = 0; i < 8; ++i)
      (void)simt::load(reinterpret_cast<const std::uint32_t*>(
          row_.view.blocks + std::uint64_t{(random + i * 5) % blocks} * step));
  }
  template <typename Members>
  SIMT_DEVICE device::status allocate(const Members& group, std::uint32_t bytes,
                                      std::uint32_t& handle) {
    return pool_.allocate(group, bytes, handle);
  }
  template <typename Members>
  SIMT_DEVICE device::status free(const Members& group, std::uint32_t handle) {
    return pool_.free(group, handle);
  }
  SIMT_DEVICE void note(device::status result, bool counts) {
    if (counts || result != device::status::done)
      simt::red_add_relaxed(row_.results + static_cast<std::uint32_t>(result), 1U);
  }
  SIMT_DEVICE void wrong(unsigned which) {
    simt::red_add_relaxed(row_.results + PoolRow::kStatuses + which, 1U);
  }

  SIMT_DEVICE std::uint32_t first_of(std::uint32_t handle) const {
    return static_cast<std::uint32_t>(device::pool::offset_of(handle) / 64);
  }
  SIMT_DEVICE std::uint32_t last_of(std::uint32_t handle) const {
    return first_of(handle) + device::pool::bytes_of(handle) / 64 - 1;
  }
  SIMT_DEVICE Words4 words_at(std::uint32_t handle, std::uint32_t at) const {
    const std::uint32_t word = mixed(own_ + 1, handle * 31 + at);
    return {{word, own_, handle, ~word}};
  }
  /// Each 16 bytes of a small block, some of a large one.
  template <typename Call>
  SIMT_DEVICE void for_each_place(std::uint32_t handle, const Call& call) {
    const std::uint32_t bytes = device::pool::bytes_of(handle);
    const std::uint32_t step = bytes <= 128 ? 16 : bytes / 8;
    for (std::uint32_t at = 0; at < bytes; at += step) {
      call(at);
      if (step > 16) call(at + step - 16);
    }
  }

  SIMT_DEVICE void take(std::uint32_t handle, std::uint32_t bytes) {
    if (handle == device::pool::kNoBlock) return;
    const std::uint64_t size = std::uint64_t{row_.view.slabs} << row_.view.slab_log2;
    const std::uint32_t all = device::pool::bytes_of(handle);
    if (device::pool::offset_of(handle) + all > size ||
        device::pool::offset_of(handle) % all != 0 || all < bytes ||
        (all > 64 && all / 2 >= bytes)) {
      wrong(2);
      return;
    }
    if (simt::atomic_add_relaxed(row_.held + first_of(handle), 1U) != 0) wrong(1);
    if (last_of(handle) != first_of(handle) &&
        simt::atomic_add_relaxed(row_.held + last_of(handle), 1U) != 0)
      wrong(1);
    if (row_.counts != 0) {
      auto* const counter = reinterpret_cast<std::uint32_t*>(pool_.address(handle));
      const std::uint32_t current = simt::load(counter);
      if (current != simt::atomic_add_relaxed(row_.times + first_of(handle), 1U)) wrong(3);
      simt::store(counter, current + 1);
      return;
    }
    for_each_place(handle, [&](std::uint32_t at) {
      simt::store(reinterpret_cast<Words4*>(pool_.address(handle) + at), words_at(handle, at));
    });
  }
  SIMT_DEVICE void leave(std::uint32_t handle) {
    if (handle == device::pool::kNoBlock) return;
    if (row_.counts == 0) {
      for_each_place(handle, [&](std::uint32_t at) {
        const Words4 actual =
            simt::load(reinterpret_cast<const Words4*>(pool_.address(handle) + at));
        const Words4 expected = words_at(handle, at);
        bool is_same = true;
        for (unsigned i = 0; i < 4; ++i) is_same = is_same && actual.words[i] == expected.words[i];
        if (!is_same) wrong(0);
      });
    }
    simt::red_add_relaxed(row_.held + first_of(handle), ~0U);
    if (last_of(handle) != first_of(handle))
      simt::red_add_relaxed(row_.held + last_of(handle), ~0U);
  }

  PoolRow row_;
  device::pool pool_;
  std::uint32_t own_;
};

/// One block for a warp, held by its first thread.
struct OneOfWarp : simt::this_warp {};
template <>
SIMT_DEVICE bool PoolRun<OneOfWarp>::holds() const {
  return simt::lane_index() == 0;
}
template <>
template <>
SIMT_DEVICE device::status PoolRun<OneOfWarp>::allocate(const OneOfWarp& warp, std::uint32_t bytes,
                                                        std::uint32_t& handle) {
  const device::status result = pool_.allocate_one(warp, bytes, handle);
  if (!warp.is_leader()) handle = device::pool::kNoBlock;
  return warp.is_leader() ? result : device::status::done;
}
template <>
template <>
SIMT_DEVICE device::status PoolRun<OneOfWarp>::free(const OneOfWarp& warp, std::uint32_t handle) {
  return pool_.free(static_cast<const simt::this_warp&>(warp), handle);
}

template <typename Group>
SIMT_DEVICE_NOINLINE void run_pool(const PoolRow& row) {
  PoolRun<Group>(row).run();
}

SIMT_KERNEL(polypath_test_pool, 256, PoolRow row) {
  if (row.members == PoolMembers::thread) run_pool<simt::this_thread>(row);
  if (row.members == PoolMembers::warp) run_pool<simt::this_warp>(row);
  if (row.members == PoolMembers::one_of_warp) run_pool<OneOfWarp>(row);
  if (row.members == PoolMembers::block) run_pool<simt::this_block>(row);
}
/// `handle` are the bytes of the block.
SIMT_KERNEL(polypath_test_pool_allocate, 32, PoolFree call) {
  if (simt::thread_index() != 0) return;
  std::uint32_t handle = 0;
  const auto result = device::pool(call.view).allocate(simt::this_thread{}, call.handle, handle);
  simt::store(call.result, static_cast<std::uint32_t>(result));
}
/// As a thread that has raised the first gate in vain, by `handle`.
SIMT_KERNEL(polypath_test_pool_lower, 32, PoolFree call) {
  if (simt::thread_index() == 0) simt::red_add_relaxed(call.view.gates, 0U - call.handle);
}
SIMT_KERNEL(polypath_test_pool_free, 32, PoolFree args) {
  if (simt::thread_index() != 0) return;
  const device::status result = device::pool(args.view).free(simt::this_thread{}, args.handle);
  simt::store(args.result, static_cast<std::uint32_t>(result));
}

}  // namespace polypath::test
