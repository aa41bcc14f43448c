// The bytes that belong to an MPI datatype: its type map (MPI 4.1, section 5.1), as runs of bytes
// without the types of their parts. MPI tells how a derived datatype was made, part by part
// (MPI_Type_get_envelope, MPI_Type_get_contents).
#pragma once

#include <cstddef>
#include <cstdint>

#include "mpi/library.hpp"

namespace polypath::preload::mpi {

/// Bytes in a row.
struct Run {
  std::intptr_t offset;  ///< from the address of the element; from 0 where that is MPI_BOTTOM
  std::size_t bytes;
};

/// The runs of one element, in the order in which MPI packs them.
class TypeMap {
 public:
  /// The map of no type: no runs.
  TypeMap() noexcept = default;
  /// Where memory is missing, or MPI does not tell how the type was made, the map is one run from
  /// the first byte to the last, and not exact.
  explicit TypeMap(Handle type) noexcept;
  ~TypeMap();
  TypeMap(const TypeMap&) = delete;
  TypeMap& operator=(const TypeMap&) = delete;

  [[nodiscard]] const Run* begin() const noexcept { return runs_; }
  [[nodiscard]] const Run* end() const noexcept { return runs_ + count_; }
  /// No byte is in a run that does not belong to the type.
  [[nodiscard]] bool is_exact() const noexcept { return is_exact_; }
  /// The bytes of all runs.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// From one element to the next; may be negative.
  [[nodiscard]] std::intptr_t extent() const noexcept { return extent_; }
  /// Elements in a row have no gaps.
  [[nodiscard]] bool is_contiguous() const noexcept {
    return count_ == 1 && extent_ >= 0 && static_cast<std::size_t>(extent_) == runs_->bytes;
  }

 private:
  bool add_type(Handle type) noexcept;
  bool add_leaf(Handle type) noexcept;
  /// Adds the runs of `count` elements of `part`, the first at `offset`.
  bool add(const TypeMap& part, std::intptr_t offset, std::int64_t count) noexcept;
  bool add(Run run) noexcept;
  struct Dimension;
  /// Adds the runs of parts of an array of `part`, by its dimensions from the slowest to the
  /// fastest.
  bool add_of_array(const TypeMap& part, const Dimension* dimensions, std::int64_t count) noexcept;

  Run* runs_ = nullptr;
  std::size_t count_ = 0;
  std::size_t room_ = 0;
  std::size_t bytes_ = 0;
  std::intptr_t extent_ = 0;
  bool is_exact_ = true;
};

}  // namespace polypath::preload::mpi
