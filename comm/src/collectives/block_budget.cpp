#include "collectives/block_budget.hpp"

#include <algorithm>
#include <map>
#include <mutex>

#include "base/error.hpp"

namespace polypath {
namespace {

struct BlockReservations {
  std::mutex mutex;
  std::map<CUcontext, int> blocks;
};

BlockReservations& reserved_blocks() {
  static BlockReservations* const all =
      new BlockReservations;  // also for communicators that end with the process
  return *all;
}

/// Blocks are dealt to the clusters of multiprocessors in turn, and a cluster with one block more
/// than others keeps them waiting: 115 take 2.5 % longer than 112 (H200, docs/cuda-notes.md).
int evenly_spread(int blocks) {
  constexpr int kClusters = 8;
  return blocks < kClusters ? blocks : blocks / kClusters * kClusters;
}

/// For a communicator that comes late, next to others' kernels.
constexpr int kModest = 4;

/// Half of what is left: the busiest communicators come first, and many more may come. Of 100
/// blocks 48, 32, 8, 4, 4 and 4; sums of 16 to 256 MiB gain little from 48 to 80 blocks
/// (2 x H100, docs/cuda-notes.md).
int modest_share_of(int left) {
  constexpr int kStep = 16;
  const int half = left / 2;
  const int share = half >= kStep ? (half + kStep / 2) / kStep * kStep : half / kModest * kModest;
  return std::min(left, std::max(share, kModest));
}

/// For streams that wait on a GPU: up to eight of them hold blocks of the size of a collective's
/// (put_group.cpp). The first communicator leaves as many by itself.
constexpr int kPartForWaits = 16;

int share_of(int left, int most, bool is_modest) {
  return std::clamp(is_modest ? modest_share_of(left) : left * 7 / 8, 1, most);
}

}  // namespace

BlockReservation::BlockReservation(CUcontext context, int capacity, int most, int spared)
    : context_(context) {
  BlockReservations& all = reserved_blocks();
  const std::lock_guard lock(all.mutex);
  int& used = all.blocks[context];
  is_first_ = used == 0;
  const int kept = spared > 0 ? std::min(spared, capacity / 2) : capacity / kPartForWaits;
  const int left = capacity - (is_first_ && spared == 0 ? 0 : kept) - used;
  if (left < 1)
    throw Error(
        "too many communicators have collectives on this GPU: their kernels would not fit on it "
        "at once; destroy one first");
  blocks_ = evenly_spread(share_of(left, most, spared > 0));
  used += blocks_;
}

BlockReservation::~BlockReservation() {
  BlockReservations& all = reserved_blocks();
  const std::lock_guard lock(all.mutex);
  all.blocks[context_] -= blocks_;
}

void BlockReservation::keep(int blocks) {
  const int kept = std::clamp(blocks, 1, blocks_);
  BlockReservations& all = reserved_blocks();
  const std::lock_guard lock(all.mutex);
  all.blocks[context_] -= blocks_ - kept;
  blocks_ = kept;
}

}  // namespace polypath
