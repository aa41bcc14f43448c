// What calls of device code answer.
#pragma once

#include <cstdint>

namespace polypath::device {

enum class status : std::uint32_t {
  done,
  full,            ///< of try_push: nothing was pushed
  empty,           ///< of try_pop: there was nothing for this thread
  closed,          ///< of pops: all that was pushed before close() has been popped
  aborted,         ///< the time limit, or an abort: the queue is of no use any more
  too_many_items,  ///< items of one call for this queue: more than a segment has cells
  // For pools; `empty`: no block of this size was free.
  too_large,       ///< more bytes than the largest size class has: for the host
  invalid_handle,  ///< a handle that is none of this pool's
  double_free,     ///< a block that is not allocated: it was freed before
  bad_rank,        ///< there is no such rank: nothing was sent
  bad_view,        ///< of active messages: the cells are too small for these handlers' arguments
  // For channels:
  in_progress,  ///< of test: not yet
  truncated,    ///< the message is longer than the receive: its beginning was received
  bad_tag,      ///< not 0 to 2^31 - 1, nor any_tag for a receive
  bad_buffer,   ///< of a receive of large messages: in no window of the channel
  bad_context,  ///< there is no such context
  bad_request,  ///< of this context there is no such request, or it was told to be done before
  in_use        ///< another group uses the context, or one has not called leave()
};

}  // namespace polypath::device
