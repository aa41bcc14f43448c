// The time that a group of streams needs, together, for what is issued on them; and the median of
// such samples.
#pragma once

#include <algorithm>
#include <functional>
#include <span>
#include <vector>

#include "driver/cuda_driver.hpp"
#include "driver/resources.hpp"

namespace polypath {

/// One fork before everything and one join after it, so that the streams run at once: the first
/// stream records the start, all others wait for it, the work is issued, the first waits for all
/// others and records the end. Not thread-safe; `driver` and the streams must outlive it.
class GroupTimer {
 public:
  /// `streams` may belong to different contexts; none may be the null stream. Throws
  /// InvalidArgument when there is none.
  GroupTimer(const CudaDriver& driver, std::span<const CUstream> streams);

  /// Runs `issue`, which issues work on the streams and returns without waiting for it; waits for
  /// that work; returns the microseconds from start to end. `ahead`, if given, runs before the
  /// start is recorded and issues work on the first stream: if that lasts until all is issued, the
  /// CPU's time is not in the result. The streams must be idle. The context of the first stream is
  /// current to the thread while the callables run. Throws what they throw, or DriverError, after
  /// waiting for what had been issued.
  double run(const std::function<void()>& issue, const std::function<void()>& ahead = {});

 private:
  double fork_run_join(const std::function<void()>& issue);

  const CudaDriver& driver_;
  std::vector<CUstream> streams_;
  CUcontext context_;  ///< of the first stream
  Event start_;
  Event end_;
  std::vector<Event> joins_;  ///< of the streams but the first
};

/// The middle sample, or the mean of the two middle ones; `samples` must not be empty.
inline double median(std::vector<double> samples) {
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  std::ranges::nth_element(samples, middle);
  if (samples.size() % 2 == 1) return *middle;
  return (*std::max_element(samples.begin(), middle) + *middle) / 2;
}

}  // namespace polypath
