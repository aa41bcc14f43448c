// The median of samples.
#pragma once

#include <algorithm>
#include <vector>

namespace polypath {

/// The middle sample, or the mean of the two middle ones; `samples` must not be empty.
inline double median(std::vector<double> samples) {
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  std::ranges::nth_element(samples, middle);
  if (samples.size() % 2 == 1) return *middle;
  return (*std::max_element(samples.begin(), middle) + *middle) / 2;
}

}  // namespace polypath
