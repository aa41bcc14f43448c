// Himeno's pressure on the host: initial values, and the result that the kernels must reach.
#pragma once

#include <cstdint>
#include <vector>

#include "himeno_run.h"

namespace messaging_example {

struct HimenoSize {
  std::uint32_t planes;  ///< with the two at the edges, which stay
  std::uint32_t rows;
  std::uint32_t width;
  [[nodiscard]] std::size_t plane() const { return std::size_t{rows} * width; }
  [[nodiscard]] std::size_t cells() const { return planes * plane(); }
};

/// The inner planes of a rank: `first` counts from the edge.
struct HimenoPart {
  std::uint32_t first;
  std::uint32_t planes;
};
HimenoPart part_of(const HimenoSize& size, std::uint32_t rank, std::uint32_t ranks);

std::vector<float> himeno_begin(const HimenoSize& size);

struct HimenoResult {
  std::vector<float> pressure;
  double residual;  ///< of the last iteration: the sum of the squares of all changes
};
HimenoResult himeno_alone(const HimenoSize& size, std::uint32_t iterations);

/// Adds up rows in their order: `sums` has `rows` of each inner plane.
double residual_of(const HimenoSize& size, const std::vector<float>& sums);

}  // namespace messaging_example
