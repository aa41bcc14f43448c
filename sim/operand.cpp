#include "operand.hpp"

#include <bit>

#include "failure.hpp"

namespace polypath::sim {

const std::byte* Operand::read(std::size_t bytes) const {
  return allocation ? allocation->read(address, bytes) : std::bit_cast<const std::byte*>(address);
}

std::byte* Operand::overwrite(std::size_t bytes) const {
  return allocation ? allocation->overwrite(address, bytes) : std::bit_cast<std::byte*>(address);
}

Placement Operand::placement() const {
  if (!allocation) return {};
  const bool is_registered = allocation->kind == Allocation::Kind::registered;
  return {is_registered ? Allocation::Kind::pinned : allocation->kind, allocation->device,
          allocation->context};
}

Operand find_operand(const Memory& memory, std::uintptr_t address, std::size_t bytes,
                     MemoryId pageable_location) {
  require(address != 0, CUDA_ERROR_INVALID_VALUE);
  const AllocationPtr allocation = memory.find_overlap(address, bytes);
  if (!allocation) {
    require(!memory.owns(address), CUDA_ERROR_INVALID_VALUE);
    return {address, nullptr, pageable_location};
  }
  // A range that begins before the allocation, or ends after it, is out of bounds.
  const std::uintptr_t offset = address - allocation->base;
  require(offset < allocation->bytes && bytes <= allocation->bytes - offset,
          CUDA_ERROR_INVALID_VALUE);
  return {address, allocation, allocation->location};
}

}  // namespace polypath::sim
