#include "collectives/block_budget.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace polypath {

/// The shares of a GPU. The lock is held while blocks change hands, never while a call is issued.
struct BlockPool {
  std::mutex mutex;
  std::vector<BlockShare*> shares;
};

namespace {

/// Lives as long as the process: so may communicators.
BlockPool& pool_of(CUcontext context) {
  struct Pools {
    std::mutex mutex;
    std::map<CUcontext, BlockPool> by_context;
  };
  static Pools* const all = new Pools;
  const std::lock_guard lock(all->mutex);
  return all->by_context[context];
}

/// Blocks are dealt to the clusters of multiprocessors in turn, and a cluster with one block more
/// than others keeps them waiting: 115 take 2.5 % longer than 112 (H200, docs/cuda-notes.md).
int evenly_spread(int blocks) {
  constexpr int kClusters = 8;
  return blocks < kClusters ? blocks : blocks / kClusters * kClusters;
}

/// Reserved for each communicator: enough that it goes on next to others.
constexpr int kReserved = 4;

/// A call has seven eighths of the GPU; next to kernels of others about half, in steps of 16. 100
/// blocks make 48: sums of 16 to 256 MiB gain little from 48 to 80 blocks (2 x H100,
/// docs/cuda-notes.md).
int max_share(int capacity, int limit, bool is_modest) {
  if (!is_modest) return capacity * 7 / 8;
  constexpr int kStep = 16;
  const int half = limit / 2;
  return half >= kStep ? (half + kStep / 2) / kStep * kStep : half / kReserved * kReserved;
}

/// For streams that wait on a GPU: up to eight of them hold blocks of the size of a collective's
/// (put_group.cpp).
constexpr int kPartForWaits = 16;

constexpr std::uint64_t kTaken = 0xffffffff;
constexpr std::uint64_t kIssuing = std::uint64_t{1} << 32;

}  // namespace

BlockShare::BlockShare(CUcontext context, int capacity, int most, int spared,
                       std::function<bool()> in_flight)
    : pool_(pool_of(context)), in_flight_(std::move(in_flight)) {
  const bool is_modest = spared > 0;
  limit_ = capacity - (is_modest ? std::min(spared, capacity / 2) : capacity / kPartForWaits);
  const int each = std::clamp(limit_ / 8, 1, kReserved);
  // Where several communicators are usual, a third is kept for what they reserve.
  future_ = std::max(1, limit_ / (is_modest ? 3 : 8) / each) * each;
  reserved_ = each;
  const std::lock_guard lock(pool_.mutex);
  is_first_ = pool_.shares.empty();
  for (BlockShare* const other : pool_.shares) other->yield_if_idle();
  int used = each;
  for (const BlockShare* const other : pool_.shares) used += other->reserved_ + other->taken();
  if (used > limit_)
    throw Error(
        "too many communicators have collectives on this GPU: their kernels would not fit on it "
        "at once; destroy one first");
  const int all = std::min(most, each + limit_ - future_);
  blocks_ = evenly_spread(std::clamp(max_share(capacity, limit_, is_modest), 1, std::max(all, 1)));
  reserved_ = std::min(reserved_, blocks_);
  pool_.shares.push_back(this);
}

BlockShare::~BlockShare() {
  const std::lock_guard lock(pool_.mutex);
  std::erase(pool_.shares, this);
}

void BlockShare::keep(int blocks) { blocks_ = std::clamp(blocks, 1, blocks_); }

int BlockShare::taken() const noexcept { return static_cast<int>(state_.load() & kTaken); }

BlockShare::Use BlockShare::begin(int max_blocks, bool lasts) {
  const int most = std::clamp(max_blocks, 1, blocks_);
  state_.fetch_add(kIssuing);
  if (taken() < most - reserved_) take(most - reserved_);
  const int have = reserved_ + taken();
  const int blocks = have < most ? evenly_spread(have) : most;
  if (lasts && !has_mutant(BlockFault::lasting_blocks_yield))
    lasting_ = std::max(lasting_.load(), blocks - reserved_);
  return {*this, std::max(blocks, 1)};
}

void BlockShare::end() noexcept { state_.fetch_add(kIssuing); }

void BlockShare::take(int max_blocks) {
  const std::lock_guard lock(pool_.mutex);
  const auto left = [&] {
    if (has_mutant(BlockFault::pool_without_end)) return max_blocks;
    int reserved = 0;
    int used = 0;
    for (const BlockShare* const share : pool_.shares) {
      reserved += share->reserved_;
      used += share->taken();
    }
    return limit_ - std::max(reserved, future_) - used;
  };
  const int more = max_blocks - taken();
  int free = left();
  for (BlockShare* const other : pool_.shares) {
    if (free >= more) break;
    if (other == this) continue;
    other->yield_if_idle();
    free = left();
  }
  if (free > 0) state_.fetch_add(static_cast<std::uint64_t>(std::min(free, more)));
}

void BlockShare::yield_if_idle() {
  std::uint64_t seen = state_.load();
  const bool is_issued = (seen / kIssuing) % 2 != 0 && !has_mutant(BlockFault::issued_share_yields);
  const auto lasting = static_cast<std::uint64_t>(lasting_.load());
  if (is_issued || (seen & kTaken) <= lasting) return;
  if (in_flight_() && !has_mutant(BlockFault::busy_share_yields)) return;
  // Fails if a call has begun since.
  if (has_mutant(BlockFault::begun_calls_unseen)) seen = state_.load();
  state_.compare_exchange_strong(seen, (seen & ~kTaken) | lasting);
}

BlockShare::Use::Use(Use&& other) noexcept
    : share_(std::exchange(other.share_, nullptr)), blocks_(other.blocks_) {}

BlockShare::Use::~Use() {
  if (share_ == nullptr) return;
  share_->lasting_ = share_->taken();
  share_->end();
}

void BlockShare::Use::done() noexcept {
  if (BlockShare* const share = std::exchange(share_, nullptr)) share->end();
}

}  // namespace polypath
