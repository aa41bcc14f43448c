// Pools of several GPUs, one per rank. A block may be passed to another GPU, as its handle and the
// rank of its owner, which both sides turn into addresses; the holder frees it through the owner's
// queue. Only the owner's GPU touches gates and bits: between GPUs all is
// stores.
//
// Memory model: what a holder did with a block before it gave it back happens before what the next
// holder does after its allocation. A handle goes to another GPU by push_release() and
// pop_acquire() of a queue, or after a signal.
#pragma once

#include <cstdint>

#include "polypath/device/detail/mutants.hpp"
#include "polypath/device/pool.cuh"
#include "polypath/device/queue.cuh"

namespace polypath::device {

/// A view that lies in memory of the GPU.
POLYPATH_DEVICE queue_view load_view(const queue_view* from) {
  static_assert(sizeof(queue_view) % sizeof(std::uint64_t) == 0);
  constexpr std::size_t kWords = sizeof(queue_view) / sizeof(std::uint64_t);
  std::uint64_t words[kWords];
  POLYPATH_UNROLL
  for (std::size_t i = 0; i < kWords; ++i)
    words[i] = load(reinterpret_cast<const std::uint64_t*>(from) + i);
  queue_view view;
  memcpy(&view, words, sizeof view);
  return view;
}

class shared_pool {
 public:
  static constexpr std::uint32_t kNoBlock = pool_view::kNoBlock;

  POLYPATH_DEVICE explicit shared_pool(const shared_pool_view& view) : view_(view) {}

  /// This rank's pool, which it allocates from.
  [[nodiscard]] POLYPATH_DEVICE pool own() const { return pool(view_.own); }

  /// Where a block of `owner` begins, a rank that there is, as this GPU has it.
  [[nodiscard]] POLYPATH_DEVICE unsigned char* address(int owner, std::uint32_t handle) const {
    unsigned char* begin = view_.blocks[0];
    POLYPATH_UNROLL
    for (int rank = 1; rank < shared_pool_view::kMaxRanks; ++rank)
      if (rank == owner) begin = view_.blocks[rank];
    return begin + pool::offset_of(handle);
  }

  /// Gives the block of each thread of the group, which all call it, back to its owner; kNoBlock:
  /// nothing of this thread's. Waits while the owner's queue is full. `invalid_handle`: there is no
  /// such rank. What is wrong with a handle the owner finds (take_back).
  template <typename Group>
  POLYPATH_DEVICE status free(const Group& group, int owner, std::uint32_t handle) const {
    const auto push = [](const auto& queue, const auto& team, std::uint32_t item) {
      POLYPATH_MUTANT(shared_pool_mutant::no_release, return queue.push(team, item))
      return queue.push_release(team, item);
    };
    return give_each(group, owner, handle, push);
  }
  /// As free(), but never waits: `full`, and the thread keeps its block.
  template <typename Group>
  POLYPATH_DEVICE status try_free(const Group& group, int owner, std::uint32_t handle) const {
    return give_each(group, owner, handle,
                     [](const auto& queue, const auto& team, std::uint32_t item) {
                       team.sync();
                       fence<system_scope>();
                       return queue.try_push(team, item);
                     });
  }

  /// Frees what other ranks gave back. Never waits. A warp or a thread calls it, now and then: a
  /// pool that is empty may not be after it. `done`, or what was wrong with one of the handles.
  /// `count`: of blocks that this thread freed.
  template <typename Team>
  POLYPATH_DEVICE status take_back(const Team& team, unsigned* count = nullptr) const {
    status result = status::done;
    unsigned freed = 0;
    for (int rank = 0; rank < view_.ranks; ++rank) {
      if (rank == view_.rank) continue;
      const Returns queue(load_view(view_.from_holder + rank));
      for (unsigned round = 0; round < kMaxRounds; ++round) {
        std::uint32_t handle = kNoBlock;
        const bool is_popped = queue.try_pop(team, handle) == status::done;
        if (!any(team, is_popped)) break;
        fence<system_scope>();
        if (!is_popped) handle = kNoBlock;
        const status answer = own().free(team, handle);
        if (answer != status::done)
          result = answer;
        else if (handle != kNoBlock)
          ++freed;
      }
    }
    if (count != nullptr) *count = freed;
    return result;
  }

 private:
  using Returns = queue<std::uint32_t, system_scope>;
  static constexpr unsigned kMaxRounds = 64;

  POLYPATH_DEVICE static bool any(const this_thread&, bool value) { return value; }
  POLYPATH_DEVICE static bool any(const this_warp&, bool value) { return warp_any(value); }

  /// Threads of a warp may have blocks of several owners: those of one go together.
  template <typename Group, typename Push>
  POLYPATH_DEVICE status give_each(const Group& group, int owner, std::uint32_t handle,
                                   const Push& push) const {
    group.sync();
    const auto team = detail::team_of(group);
    status result = status::done;
    if (handle != kNoBlock && (owner < 0 || owner >= view_.ranks)) result = status::invalid_handle;
    for (int rank = 0; rank < view_.ranks; ++rank) {
      const bool is_its = handle != kNoBlock && owner == rank;
      if (!any(team, is_its)) continue;
      const std::uint32_t item = is_its ? handle : kNoBlock;
      status answer = status::done;
      if (rank == view_.rank) {
        answer = own().free(team, item);
      } else {
        int to = rank;
        POLYPATH_MUTANT(shared_pool_mutant::next_rank, to = next_of(rank))
        answer = push(Returns(load_view(view_.to_owner + to)), team, item);
      }
      if (is_its) result = answer;
    }
    return result;
  }
  /// Another one than this rank.
  [[nodiscard]] POLYPATH_DEVICE int next_of(int rank) const {
    const int next = (rank + 1) % view_.ranks;
    return next == view_.rank ? (next + 1) % view_.ranks : next;
  }

  shared_pool_view view_;
};

}  // namespace polypath::device
