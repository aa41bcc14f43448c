// Kernels that give each other blocks of their pools.
#include "polypath/device/queue.cuh"
#include "polypath/device/shared_pool.cuh"
#include "shared_pool_kernels.h"
#include "simt/platform.cuh"

namespace polypath::test {

class SharedPoolRun {
 public:
  SIMT_DEVICE explicit SharedPoolRun(const SharedPoolRow& row)
      : row_(row), pool_(row.view), own_(row.view.own) {}

  SIMT_DEVICE void send() const {
    const simt::this_warp warp{};
    int to = next(row_.view.rank);
    for (std::uint32_t round = 0; round < row_.rounds; ++round) {
      const std::uint32_t value = (row_.seed + round) * 0x9E3779B9U + simt::thread_index();
      const std::uint32_t bytes = 1 + value % 4096;
      std::uint32_t handle = device::pool::kNoBlock;
      for (;;) {
        std::uint32_t allocated = device::pool::kNoBlock;
        const bool asks = handle == device::pool::kNoBlock;
        if (own_.allocate(warp, asks ? bytes : 0, allocated) == device::status::done && asks)
          handle = allocated;
        if (!simt::warp_any(handle == device::pool::kNoBlock)) break;
        collect();
        rest();
      }
      fill(row_.view.rank, handle, value);
      const device::queue<Parcel, device::system_scope> queue(device::load_view(row_.to + to));
      const Parcel parcel{static_cast<std::uint32_t>(row_.view.rank), handle, value};
      if (queue.push_release(warp, parcel) != device::status::done) return wrong();
      to = next(to);
    }
    // The holder may be waiting for room to free them.
    const std::uint32_t all = row_.rounds * simt::block_size();
    while (simt::warp_shuffle(simt::load_relaxed(row_.returned), 0) < all) {
      collect();
      rest();
    }
  }

  SIMT_DEVICE void receive() const {
    const simt::this_warp warp{};
    // As many as send() of each other rank gives to this one.
    for (int from = 0; from < row_.view.ranks; ++from) {
      if (from == row_.view.rank) continue;
      const device::queue<Parcel, device::system_scope> queue(device::load_view(row_.from + from));
      int to = from;
      for (std::uint32_t round = 0; round < row_.rounds; ++round) {
        do to = (to + 1) % row_.view.ranks;
        while (to == from);
        if (to != row_.view.rank) continue;
        Parcel parcel{0, device::pool::kNoBlock, 0};
        if (queue.pop_acquire(warp, parcel) != device::status::done) return wrong();
        if (parcel.owner != static_cast<std::uint32_t>(from) ||
            !holds(from, parcel.handle, parcel.value))
          wrong();
        fill(from, parcel.handle, ~parcel.value);
        if (pool_.free(warp, from, parcel.handle) != device::status::done) wrong();
      }
    }
  }

  SIMT_DEVICE void collect() const {
    unsigned count = 0;
    if (pool_.take_back(simt::this_warp{}, &count) != device::status::done) wrong();
    if (count > 0) simt::red_add_relaxed(row_.returned, count);
  }

 private:
  SIMT_DEVICE int next(int to) const {
    do to = (to + 1) % row_.view.ranks;
    while (to == row_.view.rank);
    return to;
  }
  SIMT_DEVICE static void rest() {
    if (simt::lane_index() == 0) simt::spin_pause();
    simt::warp_sync();
  }
  SIMT_DEVICE void wrong() const { simt::red_add_relaxed(row_.wrong, 1U); }
  SIMT_DEVICE void fill(int owner, std::uint32_t handle, std::uint32_t value) const {
    for (unsigned i = 0; i < 8; ++i) simt::store(word(owner, handle, i), value + i);
  }
  SIMT_DEVICE bool holds(int owner, std::uint32_t handle, std::uint32_t value) const {
    bool is_right = true;
    for (unsigned i = 0; i < 8; ++i)
      is_right = is_right && simt::load(word(owner, handle, i)) == value + i;
    return is_right;
  }
  /// One of eight words over the block, the last one at its end.
  SIMT_DEVICE std::uint32_t* word(int owner, std::uint32_t handle, unsigned which) const {
    const std::uint32_t part = device::pool::bytes_of(handle) / 8;
    return reinterpret_cast<std::uint32_t*>(pool_.address(owner, handle) + (which + 1) * part - 4);
  }

  const SharedPoolRow& row_;
  device::shared_pool pool_;
  device::pool own_;
};

SIMT_KERNEL(polypath_test_shared_pool, 64, SharedPoolRow row) {
  const SharedPoolRun run(row);
  if (simt::block_index() == 0)
    run.send();
  else
    run.receive();
}

SIMT_KERNEL(polypath_test_shared_free, 32, SharedFreeRow row) {
  const device::shared_pool pool(row.view);
  for (std::uint32_t time = 0; time < row.times; ++time)
    if (pool.free(simt::this_warp{}, row.owner, simt::lane_index()) != device::status::done) return;
}

}  // namespace polypath::test
