// Whether what threads saw of a queue can be what a queue does.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "queue_bench.h"

namespace messaging_bench {

/// Empty when the history is linearizable: there is an order of all calls, each between its begin
/// and its end, in which the queue gives first what came first. `pushes[i]` and `pops[i]` are of
/// item i. A clock that stands for `resolution_ns` tells no more than that. Two conditions suffice
/// for histories in which every item was popped (Henzinger, Sezgin, Vafeiadis, CONCUR 2013, theorem
/// 1): no pop ends before its push begins, and where one push ends before another begins, the
/// other's pop does not end before the one's begins.
inline std::string why_not_linearizable(const std::vector<Operation>& pushes,
                                        const std::vector<Operation>& pops,
                                        std::uint64_t resolution_ns) {
  const std::size_t count = pushes.size();
  for (std::size_t i = 0; i < count; ++i)
    if (pops[i].ended + resolution_ns < pushes[i].began)
      return "item " + std::to_string(i) + " was popped before it was pushed";
  std::vector<std::size_t> by_begin(count);
  std::vector<std::size_t> by_end(count);
  for (std::size_t i = 0; i < count; ++i) by_begin[i] = by_end[i] = i;
  std::ranges::sort(by_begin, {}, [&](std::size_t i) { return pushes[i].began; });
  std::ranges::sort(by_end, {}, [&](std::size_t i) { return pushes[i].ended; });
  // Among items whose push ended before that of `late` began: the one whose pop began last.
  std::size_t ended = 0;
  std::size_t last = count;
  for (const std::size_t late : by_begin) {
    for (; ended < count && pushes[by_end[ended]].ended + resolution_ns < pushes[late].began;
         ++ended)
      if (last == count || pops[by_end[ended]].began > pops[last].began) last = by_end[ended];
    if (last != count && pops[late].ended + resolution_ns < pops[last].began)
      return "item " + std::to_string(late) + " overtook item " + std::to_string(last);
  }
  return "";
}

}  // namespace messaging_bench
