#include "himeno_host.hpp"

#include <array>
#include <utility>

namespace messaging_example {

HimenoPart part_of(const HimenoSize& size, std::uint32_t rank, std::uint32_t ranks) {
  const std::uint32_t inner = size.planes - 2;
  const std::uint32_t first = inner * rank / ranks;
  return {first + 1, inner * (rank + 1) / ranks - first};
}

std::vector<float> himeno_begin(const HimenoSize& size) {
  std::vector<float> cells(size.cells());
  const auto last = static_cast<float>(size.planes - 1);
  for (std::size_t at = 0; at < cells.size(); ++at) {
    const auto i = static_cast<float>(at / size.plane());
    cells[at] = i * i / (last * last);
  }
  return cells;
}

HimenoResult himeno_alone(const HimenoSize& size, std::uint32_t iterations) {
  std::vector<float> from = himeno_begin(size);
  std::vector<float> to = from;
  std::vector<float> sums(std::size_t{size.planes - 2} * size.rows, 0);
  const auto plane = static_cast<std::ptrdiff_t>(size.plane());
  const auto width = static_cast<std::ptrdiff_t>(size.width);
  for (std::uint32_t iteration = 0; iteration < iterations; ++iteration) {
    for (std::uint32_t i = 1; i + 1 < size.planes; ++i)
      for (std::uint32_t j = 1; j + 1 < size.rows; ++j) {
        std::array<float, kLanes> lanes{};
        const std::size_t row = i * size.plane() + std::size_t{j} * size.width;
        for (std::uint32_t k = 1; k + 1 < size.width; ++k) {
          const float* const cell = from.data() + row + k;
          const auto at = [&](int di, int dj, int dk) {
            return cell[di * plane + dj * width + dk];
          };
          const float change = himeno_change(at);
          float& sum = lanes[(k - 1) % kLanes];
          sum = sum + change * change;
          to[row + k] = *cell + change;
        }
        for (std::uint32_t half = kLanes / 2; half > 0; half /= 2)
          for (std::uint32_t lane = 0; lane < half; ++lane)
            lanes[lane] = lanes[lane] + lanes[lane + half];
        sums[std::size_t{i - 1} * size.rows + j] = lanes[0];
      }
    std::swap(from, to);
  }
  return {from, residual_of(size, sums)};
}

double residual_of(const HimenoSize& size, const std::vector<float>& sums) {
  double residual = 0;
  for (std::uint32_t i = 0; i + 2 < size.planes; ++i)
    for (std::uint32_t j = 1; j + 1 < size.rows; ++j)
      residual += static_cast<double>(sums[std::size_t{i} * size.rows + j]);
  return residual;
}

}  // namespace messaging_example
