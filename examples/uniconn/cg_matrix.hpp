// Matrices of the sizes and patterns of two of the SuiteSparse collection, made and not read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace uniconn_example {

/// A brick of nodes with three unknowns each; a node is coupled with its neighbours, and each
/// unknown of one with each of the other. Symmetric, positive definite.
struct Brick {
  std::string name;
  int nodes = 0;   ///< along each edge
  int points = 0;  ///< 15: itself, 6 faces, 8 corners; 27: all of the cube around it

  [[nodiscard]] std::uint64_t rows() const;
  /// No eigenvalue is larger.
  [[nodiscard]] double norm() const;
};
/// "serena-like": 77^3 x 3 = 1 369 599 rows, 15 points (45 entries a row);
/// "queen-like": 111^3 x 3 = 4 102 893 rows, 27 points (81 a row);
/// "small": 15^3 x 3 = 10 125 rows, 15 points. Throws std::runtime_error for another name.
Brick brick(const std::string& name);

/// Rows of it, in the form CSR: the entries of row r are numbers offsets[r] to offsets[r + 1].
struct Rows {
  std::uint64_t first = 0;
  std::vector<std::uint64_t> offsets;
  std::vector<std::int32_t> columns;
  std::vector<double> values;

  [[nodiscard]] std::uint64_t count() const { return offsets.size() - 1; }
};
Rows rows_of(const Brick& brick, std::uint64_t first, std::uint64_t count);

/// The right side, from row `first` on: as if random, in [0, 1).
std::vector<double> right_side(std::uint64_t first, std::uint64_t count);

}  // namespace uniconn_example
