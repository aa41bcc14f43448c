// The part of the grid that one rank holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "support/memory.hpp"

namespace jacobi {

/// The whole grid. Its rows are a ring: the last one's neighbour is the first. The first and the
/// last column never change.
struct Shape {
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
};

/// A block of rows between two halo rows, twice: before and after an iteration.
class Field {
 public:
  /// The block of `rank` of `ranks`. Throws std::runtime_error when memory runs out.
  Field(mpi_bench::MemoryKind kind, const Shape& shape, int rank, int ranks)
      : columns_(shape.columns),
        first_(begin(shape, rank, ranks)),
        rows_(begin(shape, rank + 1, ranks) - first_),
        now_(kind, bytes(rows_ + 2)),
        next_(kind, bytes(rows_ + 2)) {}

  [[nodiscard]] std::uint64_t columns() const noexcept { return columns_; }
  /// Rows of the block; they are numbers 1 to rows() here. 0 and rows() + 1 are the halo.
  [[nodiscard]] std::uint64_t rows() const noexcept { return rows_; }
  /// The number of the block's first row in the whole grid.
  [[nodiscard]] std::uint64_t first() const noexcept { return first_; }

  [[nodiscard]] mpi_bench::Memory& now() noexcept { return *current_; }
  [[nodiscard]] mpi_bench::Memory& next() noexcept { return *other_; }
  /// After an iteration: what was next is now.
  void swap() noexcept { std::swap(current_, other_); }

  /// Bytes of `rows` rows, and therefore the offset of the row with this number.
  [[nodiscard]] std::size_t bytes(std::uint64_t rows) const noexcept {
    return rows * columns_ * sizeof(float);
  }

 private:
  static std::uint64_t begin(const Shape& shape, int rank, int ranks) noexcept {
    return shape.rows * static_cast<std::uint64_t>(rank) / static_cast<std::uint64_t>(ranks);
  }

  std::uint64_t columns_;
  std::uint64_t first_;
  std::uint64_t rows_;
  mpi_bench::Memory now_;
  mpi_bench::Memory next_;
  mpi_bench::Memory* current_ = &now_;
  mpi_bench::Memory* other_ = &next_;
};

}  // namespace jacobi
