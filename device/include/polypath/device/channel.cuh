// Send and receive with tags between GPUs, by a warp or a block, without the CPU.
//
// A channel of a communicator has contexts. In each, one group of every rank sends and receives, as
// a rank of MPI does in a communicator; contexts know nothing of each other. What a group has begun
// in a context, and what has come there, is kept from kernel to kernel.
//
//   channel channel(this_block{}, view, block_index());  // every thread of the group calls alike
//   request coming;
//   channel.irecv(this_block{}, left, tag, halo, bytes, coming);
//   channel.send(this_block{}, right, tag, rows, bytes);
//   received got;
//   if (channel.wait(this_block{}, coming, &got) != status::done) ...
//   channel.leave(this_block{});
//
// A message goes to the receive that was posted first among those that would have it, and a receive
// takes the message that came first: messages of one rank come in the order in which they were
// sent, those of several as this rank has seen them, a fixed order from then on. any_source and
// any_tag are wildcards (envelope.hpp).
//
// Small messages (view.eager_bytes) go through a ring from one rank to the other and lie there
// until they are received; when the ring is full, sends wait. Large ones are announced in it; the
// matched receive answers with its place in a window, and the sender's group stores the bytes
// there. Nothing is overwritten when a message does not come: a wait past the time limit
// ends as aborted.
//
// What the sender's group had stored in the buffer before isend(), the receiver's group finds in
// its own when a wait or test says done. A buffer is the channel's until then.
#pragma once

#include <cstddef>
#include <cstdint>

#include "polypath/device/channel_view.hpp"
#include "polypath/device/detail/channel_control.cuh"
#include "polypath/device/detail/mutants.hpp"
#include "polypath/device/status.hpp"
#include "polypath/device/tile.cuh"

#if defined(__CUDACC__)
#define POLYPATH_SHARED(Type, name) __shared__ Type name
#else
#define POLYPATH_SHARED(Type, name) SIMT_SHARED(Type, name)
#endif

namespace polypath::device {

class channel {
 public:
  /// For this_warp or this_block. A context that there is not, or that another group has: every
  /// call says so (bad_context, in_use).
  template <typename Group>
  POLYPATH_DEVICE channel(const Group& group, const channel_view& view, std::uint32_t context)
      : control_(view, context) {
    if (context >= view.contexts) {
      state_ = status::bad_context;
      return;
    }
    std::uint32_t is_ours = 0;
    if (controls(group)) is_ours = control_.open() ? 1 : 0;
    if (share(group, is_ours) == 0) state_ = status::in_use;
  }

  /// Begins to send `bytes` bytes from `data`, any memory that this GPU reads. `begun` is the
  /// request, for wait() or test().
  ///   full       all requests are under way: nothing was sent
  ///   bad_rank, bad_tag   nothing was sent
  template <typename Group>
  POLYPATH_DEVICE status isend(const Group& group, std::uint32_t destination, std::uint32_t tag,
                               const void* data, std::uint64_t bytes, request& begun) {
    begun = request{};
    if (state_ != status::done) return state_;
    if (destination >= control_.view().ranks) return status::bad_rank;
    if (tag > kMaxTag) return status::bad_tag;
    group.sync();  // what others have stored in the buffer
    detail::channel_pending result{};
    if (controls(group))
      result =
          control_.begin_send(destination, tag, static_cast<const unsigned char*>(data), bytes);
    result = share(group, result);
    begun = {result.slot, result.generation};
    return result.result;
  }

  /// Begins to receive a message of at most `bytes` bytes into `data`, memory of this GPU; where
  /// that is more than eager_bytes, in a window of the channel.
  template <typename Group>
  POLYPATH_DEVICE status irecv(const Group& group, std::uint32_t source, std::uint32_t tag,
                               void* data, std::uint64_t bytes, request& begun) {
    begun = request{};
    const std::uint64_t window = control_.window_of(data, bytes);
    const status checked = check_receive(source, tag, bytes, window);
    if (checked != status::done) return checked;
    group.sync();  // what others have loaded from the buffer
    detail::channel_pending result{};
    if (controls(group))
      result =
          control_.begin_receive(source, tag, static_cast<unsigned char*>(data), bytes, window);
    result = share(group, result);
    begun = {result.slot, result.generation};
    return result.result;
  }

  /// Whether the request is done; carries on what is under way meanwhile.
  ///   done, truncated   it is, and is gone; of a receive, `*got` is what came
  ///   in_progress         not yet
  ///   bad_request, aborted
  template <typename Group>
  POLYPATH_DEVICE status test(const Group& group, const request& handle, received* got = nullptr) {
    wait_timer watch;
    return step(group, handle, got, watch, false);
  }
  /// Waits until it is done, no longer than the time limit.
  template <typename Group>
  POLYPATH_DEVICE status wait(const Group& group, const request& handle, received* got = nullptr) {
    if (state_ == status::done && handle.slot == request::kNothing) return status::done;
    for (wait_timer watch;;) {
      const status result = step(group, handle, got, watch, true);
      if (result != status::in_progress) return result;
    }
  }
  /// Carries on what is under way.
  template <typename Group>
  POLYPATH_DEVICE status progress(const Group& group) {
    return test(group, request{});
  }

  /// isend() or irecv(), and wait().
  template <typename Group>
  POLYPATH_DEVICE status send(const Group& group, std::uint32_t destination, std::uint32_t tag,
                              const void* data, std::uint64_t bytes) {
    request begun;
    const status result = isend(group, destination, tag, data, bytes, begun);
    return result == status::done ? wait(group, begun) : result;
  }
  template <typename Group>
  POLYPATH_DEVICE status recv(const Group& group, std::uint32_t source, std::uint32_t tag,
                              void* data, std::uint64_t bytes, received* got = nullptr) {
    const status checked = check_receive(source, tag, bytes, control_.window_of(data, bytes));
    if (checked != status::done) return checked;
    if (source != any_source) {
      group.sync();  // what others have loaded from the buffer
      detail::channel_step direct{};
      if (controls(group))
        direct = control_.receive_directly(source, tag, static_cast<unsigned char*>(data), bytes);
      direct = share(group, direct);
      if (direct.result != status::in_progress) return report(direct, got);
    }
    request begun;
    const status result = irecv(group, source, tag, data, bytes, begun);
    return result == status::done ? wait(group, begun, got) : result;
  }

  /// Keeps what is under way for the next group of this context. Called once, last.
  template <typename Group>
  POLYPATH_DEVICE void leave(const Group& group) {
    group.sync();
    if (state_ != status::done) return;
    if (controls(group)) control_.close();
    state_ = status::bad_context;  // it is another group's now
  }

 private:
  POLYPATH_DEVICE status check_receive(std::uint32_t source, std::uint32_t tag, std::uint64_t bytes,
                                       std::uint64_t window) const {
    if (state_ != status::done) return state_;
    if (source >= control_.view().ranks && source != any_source) return status::bad_rank;
    if (tag > kMaxTag && tag != any_tag) return status::bad_tag;
    if (bytes > control_.view().eager_bytes && window == detail::channel_control::kNoWindow)
      return status::bad_buffer;
    return status::done;
  }
  POLYPATH_DEVICE status report(const detail::channel_step& step, received* got) {
    if (step.result == status::aborted) state_ = status::aborted;
    if (got != nullptr && (step.result == status::done || step.result == status::truncated))
      *got = step.got;
    return step.result;
  }

  // ---- groups: one warp acts for all ----

  POLYPATH_DEVICE static bool controls(const this_warp&) { return true; }
  POLYPATH_DEVICE static bool controls(const this_block& block) { return block.rank() < kWarp; }
  template <typename T>
  POLYPATH_DEVICE static T share(const this_warp&, const T& value) {
    return value;
  }
  template <typename T>
  POLYPATH_DEVICE static T share(const this_block& block, const T& value) {
    POLYPATH_SHARED(T, shared);
    block.sync();
    if (block.is_leader()) shared = value;
    block.sync();
    return shared;
  }

  template <typename Group>
  POLYPATH_DEVICE status step(const Group& group, const request& handle, received* got,
                              wait_timer& watch, bool waits) {
    if (state_ != status::done) return state_;
    detail::channel_step result{};
    if (controls(group)) result = control_.take_step(handle, watch, waits);
    result = share(group, result);
    if (result.has_put != 0) {
      put(group, result.put);
      return result.result;
    }
    return report(result, got);
  }
  template <typename Group>
  POLYPATH_DEVICE void put(const Group& group, const detail::channel_put& transfer) {
    const bool leads = controls(group);
    POLYPATH_MUTANT(channel_mutant::announced_before_the_bytes,
                    if (leads) control_.announce(transfer))
    copy_tile(group, pointer_list<unsigned char, 1>{{transfer.to}, 1}, transfer.from,
              transfer.bytes);
    group.sync();
    if (!leads) return;
    POLYPATH_MUTANT_OMITS(channel_mutant::no_fence_behind_the_bytes)
    fence<system_scope>();
    POLYPATH_MUTANT_OMITS(channel_mutant::announced_before_the_bytes)
    control_.announce(transfer);
    control_.finish(transfer);
  }

  detail::channel_control control_;
  status state_ = status::done;  ///< for all threads alike
};

}  // namespace polypath::device
