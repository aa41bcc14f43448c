// What conjugate gradients of examples/uniconn must give, to the last bit.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "../../examples/uniconn/cg_arithmetic.h"
#include "../../examples/uniconn/cg_matrix.hpp"

namespace uniconn_example {

/// Conjugate gradients in one loop over all rows, with the same rounding of sums: the squares of
/// the residuals.
inline std::vector<double> cg_squares_alone(const Brick& brick, int iterations) {
  const Rows rows = rows_of(brick, 0, brick.rows());
  const std::uint64_t count = rows.count();
  const auto sum = [count](double bound, const auto& term) {
    double total = 0;
    for (std::uint64_t block = 0; block < count; block += cg::kBlockRows) {
      std::array<double, cg::kThreads> parts{};
      for (std::uint64_t i = 0; i < cg::kBlockRows && block + i < count; ++i)
        parts[i % cg::kThreads] += term(block + i);
      for (std::size_t half = cg::kThreads / 2; half > 0; half /= 2)
        for (std::size_t i = 0; i < half; ++i) parts[i] += parts[i + half];
      total += cg::rounded(parts[0], cg::magnet(bound));
    }
    return total;
  };
  std::vector<double> residual = right_side(0, count);
  std::vector<double> direction = residual;
  std::vector<double> product(count);
  const auto square = [&residual](std::uint64_t row) { return residual[row] * residual[row]; };
  double squared = sum(static_cast<double>(count), square);
  std::vector<double> squares{squared};
  for (int iteration = 0; iteration < iterations; ++iteration) {
    const double along = sum(squared * brick.norm(), [&](std::uint64_t row) {
      std::array<double, cg::kWarp> parts{};
      for (std::uint64_t at = rows.offsets[row]; at < rows.offsets[row + 1]; ++at)
        parts[(at - rows.offsets[row]) % cg::kWarp] +=
            rows.values[at] * direction[static_cast<std::size_t>(rows.columns[at])];
      for (std::size_t half = cg::kWarp / 2; half > 0; half /= 2)
        for (std::size_t i = 0; i < half; ++i) parts[i] += parts[i + half];
      product[row] = parts[0];
      return direction[row] * product[row];
    });
    const double length = squared / along;
    for (std::uint64_t row = 0; row < count; ++row) residual[row] -= length * product[row];
    const double next = sum(squared, square);
    for (std::uint64_t row = 0; row < count; ++row)
      direction[row] = residual[row] + next / squared * direction[row];
    squared = next;
    squares.push_back(squared);
  }
  return squares;
}

/// Their norms.
inline std::vector<double> cg_alone(const Brick& brick, int iterations) {
  std::vector<double> norms = cg_squares_alone(brick, iterations);
  for (double& each : norms) each = std::sqrt(each);
  return norms;
}

}  // namespace uniconn_example
