// Work on a long range by as many threads as pay.
#pragma once

#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

#include "base/thread.hpp"

namespace polypath {

/// Calls part(begin, end) on disjoint parts that together are [0, size), on as many threads as
/// there are cores, each with at least `least` of it; returns when all are done. `part` must not
/// throw.
template <typename Part>
void parallel_for(std::uint64_t size, std::uint64_t least, Part part) {
  const std::uint64_t cores = std::max(1u, std::thread::hardware_concurrency());
  const std::uint64_t parts = std::clamp<std::uint64_t>(size / least, 1, cores);
  std::vector<std::jthread> threads;
  for (std::uint64_t i = 1; i < parts; ++i)
    threads.push_back(make_thread(
        [&part, begin = size * i / parts, end = size * (i + 1) / parts] { part(begin, end); }));
  part(std::uint64_t{0}, size / parts);
}

}  // namespace polypath
