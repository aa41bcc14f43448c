// The kernel that makes a row of collectives.
#include "collectives_kernels.h"
#include "polypath/device/collectives.cuh"
#include "simt/platform.cuh"

namespace polypath::test {

template <typename Members>
class CollectivesRun {
 public:
  SIMT_DEVICE CollectivesRun(const CollectivesRow& row, const Members& group)
      : row_(row), group_(group), all_(row.view) {}

  SIMT_DEVICE device::status make(const CollectiveCall& collective) const {
    unsigned char* const own = memory_of(row_.view.rank);
    copy(own + collective.fill, collective.in, collective.in_bytes);
    if (!meet(group_)) return device::status::aborted;
    const device::status result = call(collective);
    if (result != device::status::done) return result;
    copy(collective.out, own + collective.look, collective.out_bytes);
    return meet(group_) ? device::status::done : device::status::aborted;  // before the next fill
  }

 private:
  SIMT_DEVICE static bool meet(const simt::this_grid& grid) { return grid.meet(); }
  template <typename Group>
  SIMT_DEVICE static bool meet(const Group& group) {
    group.sync();
    return true;
  }
  SIMT_DEVICE unsigned char* memory_of(int rank) const {
    unsigned char* memory = nullptr;
    for (int r = 0; r < device::collectives_view::kMaxRanks; ++r)
      if (r == rank) memory = row_.memory.at[r];
    return memory;
  }
  SIMT_DEVICE void copy(unsigned char* to, const unsigned char* from, std::uint64_t bytes) const {
    simt::copy_tile<simt::tile_access::plain, simt::tile_access::plain, 1>(
        group_, simt::pointer_list<unsigned char, 1>{{to}, 1}, from, bytes);
  }
  template <typename T>
  SIMT_DEVICE device::symmetric<T> at(std::uint64_t offset) const {
    device::symmetric<T> all{};
    for (int r = 0; r < device::collectives_view::kMaxRanks; ++r)
      all.at[r] = reinterpret_cast<T*>(row_.memory.at[r] + offset);
    return all;
  }
  template <typename Operation, typename T>
  SIMT_DEVICE device::status reduce(const CollectiveCall& collective) const {
    return all_.template all_reduce<Operation>(group_, at<T>(collective.send),
                                               at<T>(collective.recv), collective.count);
  }
  SIMT_DEVICE device::status call(const CollectiveCall& collective) const {
    switch (collective.op) {
      case CollectiveOp::barrier: return all_.barrier(group_);
      case CollectiveOp::broadcast:
        return all_.broadcast(group_, at<unsigned char>(collective.recv), collective.count,
                              collective.root);
      case CollectiveOp::all_gather: {
        const unsigned char* const own = memory_of(row_.view.rank);
        const std::uint64_t own_offset =
            collective.is_in_place != 0
                ? collective.recv + static_cast<std::uint64_t>(row_.view.rank) * collective.count
                : collective.send;
        return all_.all_gather(group_, own + own_offset, at<unsigned char>(collective.recv),
                               collective.count);
      }
      case CollectiveOp::all_reduce_float: return reduce<device::plus, float>(collective);
      case CollectiveOp::all_reduce_half: return reduce<device::plus, device::float16>(collective);
      case CollectiveOp::all_reduce_int_max:
        return reduce<device::maximum, std::int32_t>(collective);
    }
    return device::status::done;
  }

  const CollectivesRow& row_;
  Members group_;
  device::collectives all_;
};

SIMT_DEVICE CollectiveCall load_collective(const CollectiveCall* from) {
  constexpr std::size_t kWords = sizeof(CollectiveCall) / sizeof(std::uint64_t);
  std::uint64_t words[kWords];
  POLYPATH_UNROLL
  for (std::size_t i = 0; i < kWords; ++i)
    words[i] = simt::load(reinterpret_cast<const std::uint64_t*>(from) + i);
  CollectiveCall call;
  memcpy(&call, words, sizeof call);
  return call;
}

template <typename Members>
SIMT_DEVICE_NOINLINE bool make_collective(const CollectivesRow& row,
                                          const CollectiveCall& collective, const Members& group) {
  if (CollectivesRun<Members>(row, group).make(collective) == device::status::done) return true;
  simt::red_add_relaxed(row.aborted, 1U);
  return false;
}

/// Groups that are smaller than the grid are of block 0; the others wait for them at the end of
/// each call.
SIMT_KERNEL(polypath_test_collectives, 256, CollectivesRow row) {
  const simt::this_grid grid(row.view.grid, row.view.wait_ctx);
  for (std::uint32_t i = 0; i < row.count; ++i) {
    const CollectiveCall collective = load_collective(row.calls + i);
    bool goes_on = true;
    if (collective.group == CollectiveGroup::grid) {
      goes_on = make_collective(row, collective, grid);
    } else if (simt::block_index() == 0) {
      if (collective.group == CollectiveGroup::block)
        goes_on = make_collective(row, collective, simt::this_block{});
      else if (collective.group == CollectiveGroup::warp && simt::warp_index() == 0)
        goes_on = make_collective(row, collective, simt::this_warp{});
      else if (collective.group == CollectiveGroup::thread && simt::thread_index() == 0)
        goes_on = make_collective(row, collective, simt::this_thread{});
    }
    if (simt::block_any(!goes_on)) return;
    if (collective.group != CollectiveGroup::grid && !grid.meet()) return;
  }
}

}  // namespace polypath::test
