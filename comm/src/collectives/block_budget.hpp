// Which communicator's kernels may have how many blocks of a GPU, in this process.
//
// A collective ends only when it runs on all its ranks, and ranks run the collectives of several
// communicators in any order. So all blocks that wait for other GPUs must be able to run at once:
// then no kernel waits for room that another one holds while it waits (docs/adr/0045).
//
// 1. Each communicator has a few blocks that are reserved for it.
// 2. The others are a pool. A call that wants more than those reserved takes from it when it is
//    issued, and gets what there is. How many it gets is this rank's own matter: its kernel goes
//    through the channels of the call with any number of blocks (collective_simple.cuh).
// 3. What a communicator has taken stays with it until another one wants more than is left. That
//    one takes it from communicators whose calls have all ended on the GPU. So a communicator by
//    itself takes once, and no call of it asks the driver.
// 4. A captured call runs whenever its graph is launched, which is not known. What it takes stays
//    with its communicator as long as that exists.
//
// Invariant: reserved blocks and those taken are never more than the GPU runs at once, less those
// that are left to others. The calls of one communicator run one after another on the GPU, and none
// has more blocks than its communicator has at that time. A communicator loses blocks only while
// none of its calls is being issued or in flight.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "collectives/block_faults.hpp"
#include "driver/cuda_driver.hpp"

namespace polypath {

struct BlockPool;

/// A communicator's part of a GPU's blocks, given back at the end. Calls of one share come from one
/// thread at a time; different shares are independent.
class BlockShare {
 public:
  /// Shares `capacity` blocks that run at once in `context`. `spared` of them (half at most) are
  /// never given out; with 0 a sixteenth is left to streams that wait for signals. No call has more
  /// than `most` blocks. `in_flight` says whether a call of this share may still be on the GPU; any
  /// thread may call it, until the share has ended. Throws Error if no blocks are left to reserve.
  BlockShare(CUcontext context, int capacity, int most, int spared,
             std::function<bool()> in_flight);
  ~BlockShare();
  BlockShare(const BlockShare&) = delete;
  BlockShare& operator=(const BlockShare&) = delete;

  /// There was no other share of the GPU when this one was made.
  [[nodiscard]] bool is_first() const noexcept { return is_first_; }
  /// The most blocks of a call: as many as all are, when no other communicator is at work.
  [[nodiscard]] int blocks() const noexcept { return blocks_; }
  /// Blocks that are reserved for this share.
  [[nodiscard]] int reserved() const noexcept { return reserved_; }
  /// Lowers blocks() to this, at least one: the number that all ranks agreed on.
  void keep(int blocks);

  /// The blocks of one call. Exists while the call is issued.
  class Use {
   public:
    Use(Use&& other) noexcept;
    /// Without done(): the call may be on the GPU, and in_flight() may not know. Then its blocks
    /// stay with the share.
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

    [[nodiscard]] unsigned blocks() const noexcept { return static_cast<unsigned>(blocks_); }
    /// The call was issued: in_flight() says from now on whether it has ended.
    void done() noexcept;

   private:
    friend class BlockShare;
    Use(BlockShare& share, int blocks) : share_(&share), blocks_(blocks) {}

    BlockShare* share_;
    int blocks_;
  };

  /// Before a call of up to `max_blocks` blocks is issued: as many as there are, at least those
  /// reserved. `lasts`: the call is captured. Takes two atomic operations with end(), unless it
  /// needs more blocks than the share has.
  [[nodiscard]] Use begin(int max_blocks, bool lasts);

 private:
  void end() noexcept;
  /// Takes blocks from the pool until the share has `max_blocks` of it, or none are left.
  void take(int max_blocks);
  /// Gives what the share has of the pool to others, if it is not at work. The pool is locked.
  void yield_if_idle();
  [[nodiscard]] int taken() const noexcept;

  BlockPool& pool_;
  const std::function<bool()> in_flight_;
  int limit_;         // of all that is reserved and taken, in this share's view
  int future_;        // blocks left for shares to come
  int reserved_ = 0;  // of this share
  int blocks_ = 0;
  bool is_first_ = false;
  /// The lower half: blocks of the pool that the share has. The upper half counts beginnings and
  /// ends of calls, so it is odd while one is issued.
  std::atomic<std::uint64_t> state_{0};
  std::atomic<int> lasting_{0};  // of those blocks: for captured calls
};

/// With how many blocks a kernel goes through `channels`, of up to `blocks`: the fewest that are as
/// fast, since all rounds but the last are full.
constexpr unsigned blocks_for_channels(unsigned channels, unsigned blocks) {
  const unsigned rounds = (channels + blocks - 1) / blocks;
  return (channels + rounds - 1) / rounds;
}

}  // namespace polypath
