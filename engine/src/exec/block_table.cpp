#include "exec/block_table.hpp"

#include <sys/mman.h>

#include <algorithm>

#include "driver/check.hpp"
#include "driver/context_guard.hpp"
#include "exec/numa_binding.hpp"

namespace polypath {
namespace {

constexpr std::size_t kTableBytes = BlockTable::kEntries * sizeof(CopyBlock);

}  // namespace

BlockTable::~BlockTable() {
  if (entries_ == nullptr) return;
  prune();
  // What is not freed stays page-locked.
  if (!uses_.empty()) {
    share_.leave();
    return;
  }
  if (!devices_.any_reset()) {
    try {
      ContextGuard guard(*driver_);
      guard.use(devices_.context(gpu_));
      POLYPATH_CHECK(*driver_, mem_host_unregister(entries_));
    } catch (const DriverError& error) {
      warn_driver_error(*driver_, static_cast<CUresult>(error.code()), "freeing tables of blocks");
      share_.leave();
      return;
    }
  }
  munmap(entries_, kTableBytes);
}

void BlockTable::make(int gpu) {
  const std::lock_guard making(making_);
  if (entries_ != nullptr) return;
  PinnedBudget::Share share = devices_.pinned().take(kTableBytes);
  // Shared: after a fork, a write would give this process another page than the GPUs have.
  void* const pages =
      mmap(nullptr, kTableBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED)
    throw DriverError("no pages for tables of blocks", static_cast<int>(CUDA_ERROR_OUT_OF_MEMORY));
  try {
    ContextGuard guard(*driver_);
    guard.use(devices_.context(gpu));
    POLYPATH_CHECK(*driver_,
                   mem_host_register(pages, kTableBytes,
                                     CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
  } catch (...) {
    munmap(pages, kTableBytes);
    throw;
  }
  const std::lock_guard lock(mutex_);
  gpu_ = gpu;
  share_ = std::move(share);
  entries_ = static_cast<CopyBlock*>(pages);
}

void BlockTable::prune() {
  while (!uses_.empty()) {
    const Use& oldest = uses_.front();
    if (!oldest.is_filled) return;
    if (oldest.event != nullptr && driver_->event_query(oldest.event->get()) != CUDA_SUCCESS)
      return;
    uses_.pop_front();
  }
}

std::optional<BlockTable::Range> BlockTable::reserve(std::size_t count) {
  const std::lock_guard lock(mutex_);
  if (entries_ == nullptr || count > kMaxEntries) return std::nullopt;
  prune();
  // Uses take the ring in turn, so that what is free lies between the last and the oldest.
  std::size_t begin = 0;
  if (!uses_.empty()) {
    const std::size_t first = uses_.front().begin;
    const std::size_t last = uses_.back().end;
    begin = last;
    if (first < last) {
      if (count > kEntries - last) begin = 0;
      if (begin == 0 && count > first) return std::nullopt;
    } else if (count > first - last) {
      return std::nullopt;
    }
  }
  uses_.push_back({.id = next_id_, .begin = begin, .end = begin + count});
  return Range{entries_ + begin, next_id_++};
}

void BlockTable::release(const Range& range, std::shared_ptr<PooledEvent> end) noexcept {
  const std::lock_guard lock(mutex_);
  const auto use = std::ranges::find(uses_, range.id, &Use::id);
  use->is_filled = true;
  use->event = std::move(end);
}

}  // namespace polypath
