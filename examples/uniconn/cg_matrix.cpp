#include "cg_matrix.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <stdexcept>

#include "arithmetic.h"

namespace uniconn_example {
namespace {

constexpr int kUnknowns = 3;

/// What the pair of unknowns has in common; the same from both sides. In [0, 1).
double shared(std::uint64_t a, std::uint64_t b) {
  return static_cast<double>(jacobi::initial(jacobi::mix(std::min(a, b)) ^ std::max(a, b)));
}

bool is_neighbour(int points, int dx, int dy, int dz) {
  const int distance = std::abs(dx) + std::abs(dy) + std::abs(dz);
  return points == 27 || distance == 0 || distance == 1 || distance == 3;
}

}  // namespace

std::uint64_t Brick::rows() const {
  const auto edge = static_cast<std::uint64_t>(nodes);
  return kUnknowns * edge * edge * edge;
}

double Brick::norm() const {
  // Gershgorin: twice the largest diagonal element, which entry_of() below keeps under this.
  return 2.0 * (points * (1 + 2.0 / 512) + 1);
}

Brick brick(const std::string& name) {
  for (Brick known :
       {Brick{"serena-like", 77, 15}, Brick{"queen-like", 111, 27}, Brick{"small", 15, 15}})
    if (known.name == name) return known;
  throw std::runtime_error("--matrix is serena-like, queen-like or small");
}

Rows rows_of(const Brick& brick, std::uint64_t first, std::uint64_t count) {
  Rows rows;
  rows.first = first;
  rows.offsets.push_back(0);
  const auto entries = count * static_cast<std::uint64_t>(kUnknowns * brick.points);
  rows.columns.reserve(entries);
  rows.values.reserve(entries);
  const std::int64_t edge = brick.nodes;
  for (std::uint64_t row = first; row < first + count; ++row) {
    const auto node = static_cast<std::int64_t>(row / kUnknowns);
    const std::int64_t x = node % edge;
    const std::int64_t y = node / edge % edge;
    const std::int64_t z = node / edge / edge;
    double around = 0;  // the row's other entries, and what is missing at the surface
    std::size_t diagonal = 0;
    for (int dz = -1; dz <= 1; ++dz)
      for (int dy = -1; dy <= 1; ++dy)
        for (int dx = -1; dx <= 1; ++dx) {
          if (!is_neighbour(brick.points, dx, dy, dz)) continue;
          const bool is_inside = x + dx >= 0 && x + dx < edge && y + dy >= 0 && y + dy < edge &&
                                 z + dz >= 0 && z + dz < edge;
          if (!is_inside) {
            around += 1;
            continue;
          }
          const auto other =
              static_cast<std::uint64_t>((node + dx) + (dy + dz * edge) * edge) * kUnknowns;
          for (std::uint64_t unknown = 0; unknown < kUnknowns; ++unknown) {
            const std::uint64_t column = other + unknown;
            rows.columns.push_back(static_cast<std::int32_t>(column));
            if (column == row) {
              diagonal = rows.values.size();
              rows.values.push_back(0);
              continue;
            }
            const bool is_same = column % kUnknowns == row % kUnknowns;
            const double common = shared(row, column);
            const double value = is_same ? -(1 + common) / 2 : (common - 0.5) / 256;
            rows.values.push_back(value);
            around += std::abs(value);
          }
        }
    rows.values[diagonal] = around + 1.0 / 64;
    rows.offsets.push_back(rows.values.size());
  }
  return rows;
}

std::vector<double> right_side(std::uint64_t first, std::uint64_t count) {
  std::vector<double> values(count);
  for (std::uint64_t i = 0; i < count; ++i)
    values[i] = static_cast<double>(jacobi::initial(first + i));
  return values;
}

}  // namespace uniconn_example
