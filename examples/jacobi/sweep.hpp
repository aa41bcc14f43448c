// The solver's arithmetic on whole rows of the host's memory.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "arithmetic.h"

namespace jacobi {

/// Initial values for `count` rows; the first is row `first` of a grid of `rows`, whose rows are a
/// ring.
inline void begin_rows(float* values, std::uint64_t first, std::uint64_t count, std::uint64_t rows,
                       std::uint64_t columns) {
  for (std::uint64_t row = 0; row < count; ++row)
    for (std::uint64_t column = 0; column < columns; ++column)
      values[row * columns + column] = initial((first + row) % rows * columns + column);
}

/// One iteration: `rows` rows of `to` from as many of `from` and the rows before and after them,
/// with which `from` begins and ends. Returns the largest change of an element.
inline float sweep(const float* from, float* to, std::uint64_t rows, std::uint64_t columns) {
  const auto stride = static_cast<std::ptrdiff_t>(columns);
  float largest = 0;
  for (std::uint64_t row = 0; row < rows; ++row) {
    for (std::uint64_t column = 0; column < columns; ++column) {
      const float* const here = from + (row + 1) * columns + column;
      const bool fixed = column == 0 || column == columns - 1;
      const float now = fixed ? *here : relax(here[-stride], here[stride], here[-1], here[1]);
      to[row * columns + column] = now;
      largest = std::max(largest, change(now, *here));
    }
  }
  return largest;
}

/// The digest of `rows` rows; the first is row `first` of the grid.
inline std::uint64_t digest_rows(const float* values, std::uint64_t first, std::uint64_t rows,
                                 std::uint64_t columns) {
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < rows * columns; ++i)
    sum += digest(first * columns + i, std::bit_cast<std::uint32_t>(values[i]));
  return sum;
}

}  // namespace jacobi
