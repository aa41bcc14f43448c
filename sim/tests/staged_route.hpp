// One staged route: chunks go through a ring of slots, by two streams that hand them over by
// events.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "rig.hpp"

namespace polypath::sim::test {

class StagedRoute {
 public:
  struct Ends {
    CUdeviceptr src = 0;
    CUdeviceptr slots = 0;  ///< room for `slots` chunks
    CUdeviceptr dst = 0;
    int first_gpu = 0;  ///< whose copy engine makes the first leg
    int second_gpu = 0;
    int number = 1;  ///< of its streams
  };

  StagedRoute(Rig& rig, Ends ends, std::size_t bytes, std::size_t chunk, int slots)
      : rig_(rig),
        ends_(ends),
        bytes_(bytes),
        chunk_(chunk),
        slots_(static_cast<std::size_t>(slots)),
        first_(rig.forked(ends.first_gpu, ends.number)),
        second_(rig.forked(ends.second_gpu, ends.number + 100)) {}

  /// Issues the next chunk; false when there is none.
  bool issue() {
    const std::size_t offset = arrived_.size() * chunk_;
    if (offset >= bytes_) return false;
    const std::size_t size = std::min(chunk_, bytes_ - offset);
    const std::size_t index = arrived_.size();
    const CUdeviceptr slot = ends_.slots + index % slots_ * chunk_;
    if (index >= slots_) CHECK_CUDA(cuStreamWaitEvent(first_, arrived_[index - slots_], 0));
    const CUevent staged = rig_.event(ends_.first_gpu);
    const CUevent arrived = rig_.event(ends_.second_gpu);
    CHECK_CUDA(cuMemcpyAsync(slot, ends_.src + offset, size, first_));
    CHECK_CUDA(cuEventRecord(staged, first_));
    CHECK_CUDA(cuStreamWaitEvent(second_, staged, 0));
    CHECK_CUDA(cuMemcpyAsync(ends_.dst + offset, slot, size, second_));
    CHECK_CUDA(cuEventRecord(arrived, second_));
    arrived_.push_back(arrived);
    return true;
  }

 private:
  Rig& rig_;
  Ends ends_;
  std::size_t bytes_;
  std::size_t chunk_;
  std::size_t slots_;
  CUstream first_;
  CUstream second_;
  std::vector<CUevent> arrived_;
};

/// Issues the chunks of all routes in turn, so that none waits for the CPU to finish another.
inline void issue_all(std::vector<StagedRoute>& routes) {
  for (bool more = true; more;) {
    more = false;
    for (StagedRoute& route : routes) more = route.issue() || more;
  }
}

}  // namespace polypath::sim::test
