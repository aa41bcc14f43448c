// Records of many lengths in lists, one for each bucket, in memory that the kernels allocate from a
// pool: one kernel puts them there, the next one walks through the lists and frees them. Device
// code for GPUs (lists_kernel.cu) and, in polypath's tests, for the host.
#pragma once

#include "lists_run.h"
#include "polypath/device/pool.cuh"

namespace messaging_example {

namespace device = polypath::device;

/// A block of the pool begins with the block after it in its list and the number of its record.
inline constexpr std::uint32_t kHeadWords = 2;

POLYPATH_DEVICE std::uint32_t* words_at(const device::pool& pool, std::uint32_t handle) {
  return reinterpret_cast<std::uint32_t*>(pool.address(handle));
}

POLYPATH_DEVICE void put_in_front(std::uint32_t* head, std::uint32_t handle, std::uint32_t* words) {
  for (std::uint32_t next = device::load_relaxed<device::device_scope>(head);;) {
    device::store(words, next);
    const std::uint32_t current =
        device::compare_exchange<device::device_scope>(head, next, handle);
    if (current == next) return;
    next = current;
  }
}

POLYPATH_DEVICE void build_lists(const ListsRun& run) {
  const device::pool pool(run.view);
  const std::uint32_t threads = device::grid_size() * device::block_size();
  const std::uint32_t own = device::block_index() * device::block_size() + device::thread_index();
  for (std::uint32_t begin = 0; begin < run.records; begin += threads) {
    const std::uint32_t record = begin + own;
    const bool is_one = record < run.records;
    const std::uint32_t count = is_one ? words_of(record) : 0;
    std::uint32_t handle = device::pool::kNoBlock;
    pool.allocate(device::this_warp{}, is_one ? (kHeadWords + count) * 4 : 0, handle);
    if (handle == device::pool::kNoBlock) {
      if (is_one) device::fetch_add<device::device_scope>(run.failed, 1U);
      continue;
    }
    std::uint32_t* const words = words_at(pool, handle);
    device::store(words + 1, record);
    for (std::uint32_t i = 0; i < count; ++i)
      device::store(words + kHeadWords + i, word_of(record, i));
    put_in_front(run.heads + bucket_of(record, run.buckets), handle, words);
  }
}

/// A thread a list; those of a warp free together.
POLYPATH_DEVICE void empty_lists(const ListsRun& run) {
  const device::pool pool(run.view);
  const std::uint32_t threads = device::grid_size() * device::block_size();
  const std::uint32_t own = device::block_index() * device::block_size() + device::thread_index();
  for (std::uint32_t begin = 0; begin < run.buckets; begin += threads) {
    const std::uint32_t bucket = begin + own;
    const bool is_one = bucket < run.buckets;
    std::uint32_t handle = is_one ? device::load(run.heads + bucket) : device::pool::kNoBlock;
    std::uint64_t sum = 0;
    std::uint32_t records = 0;
    while (device::warp_any(handle != device::pool::kNoBlock)) {
      std::uint32_t next = device::pool::kNoBlock;
      if (handle != device::pool::kNoBlock) {
        const std::uint32_t* const words = words_at(pool, handle);
        next = device::load(words);
        const std::uint32_t count = words_of(device::load(words + 1));
        for (std::uint32_t i = 0; i < count; ++i) sum += device::load(words + kHeadWords + i);
        ++records;
      }
      pool.free(device::this_warp{}, handle);
      handle = next;
    }
    if (!is_one) continue;
    device::store(run.sums + bucket, sum);
    device::store(run.record_counts + bucket, records);
  }
}

}  // namespace messaging_example
