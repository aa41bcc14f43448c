// One side of a copy or fill: what memory is behind an address.
#pragma once

#include <optional>
#include <vector>

#include "memory.hpp"

namespace polypath::sim {

/// How the devices see the memory of an operand. A graph that was instantiated stays with it.
struct Placement {
  std::optional<Allocation::Kind> kind;  ///< none: pageable; registered memory counts as pinned
  int device = 0;                        ///< of the context that it was allocated in
  CUcontext context = nullptr;

  friend bool operator==(const Placement&, const Placement&) = default;
};

struct Operand {
  std::uintptr_t address = 0;
  AllocationPtr allocation;  ///< null: pageable host memory
  MemoryId location;
  std::vector<AllocationPtr> further;  ///< mappings behind `allocation` that the range runs on into

  /// The bytes from `offset` on that lie together; no limit for pageable memory.
  [[nodiscard]] std::size_t run(std::size_t offset) const;
  /// Whose these bytes are; null: pageable.
  [[nodiscard]] const Allocation* at(std::size_t offset) const;
  [[nodiscard]] MemoryId location_at(std::size_t offset) const;
  /// Bytes that lie together.
  [[nodiscard]] const std::byte* read(std::size_t offset, std::size_t bytes) const;
  [[nodiscard]] std::byte* overwrite(std::size_t offset, std::size_t bytes) const;
  [[nodiscard]] Placement placement() const;
};

/// The memory at [address, address + bytes). What the driver does not know is pageable memory, which
/// lies at `pageable_location`. Failure INVALID_VALUE for a range that was freed or runs over the bounds
/// of an allocation, but from one mapping into the next of the same reservation.
Operand find_operand(const Memory& memory, std::uintptr_t address, std::size_t bytes,
                     MemoryId pageable_location);

}  // namespace polypath::sim
