// What calls of device code answer.
#pragma once

#include <cstdint>

namespace polypath::device {

enum class status : std::uint32_t {
  done,
  full,     ///< of try_push: nothing was pushed
  empty,    ///< of try_pop: there was nothing for this thread
  closed,   ///< of pops: all that was pushed before close() has been popped
  gave_up,  ///< the time limit, or an abort: the queue is of no use any more
  too_many  ///< items of one call for this queue: more than a segment has cells
};

}  // namespace polypath::device
