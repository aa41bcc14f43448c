#include "operand.hpp"

#include <bit>

#include "failure.hpp"

namespace polypath::sim {

const Allocation* Operand::at(std::size_t offset) const {
  const std::uintptr_t wanted = address + offset;
  if (!allocation || wanted - allocation->base < allocation->bytes) return allocation.get();
  for (const AllocationPtr& each : further)
    if (wanted - each->base < each->bytes) return each.get();
  throw Failure{CUDA_ERROR_UNKNOWN};  // past the range that was looked up
}

std::size_t Operand::run(std::size_t offset) const {
  const Allocation* const holder = at(offset);
  return holder == nullptr ? SIZE_MAX : holder->base + holder->bytes - (address + offset);
}

MemoryId Operand::location_at(std::size_t offset) const {
  const Allocation* const holder = at(offset);
  return holder == nullptr ? location : holder->location;
}

const std::byte* Operand::read(std::size_t offset, std::size_t bytes) const {
  const Allocation* const holder = at(offset);
  return holder == nullptr ? std::bit_cast<const std::byte*>(address + offset)
                           : holder->read(address + offset, bytes);
}

std::byte* Operand::overwrite(std::size_t offset, std::size_t bytes) const {
  const Allocation* const holder = at(offset);
  return holder == nullptr ? std::bit_cast<std::byte*>(address + offset)
                           : holder->overwrite(address + offset, bytes);
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
    return {address, nullptr, pageable_location, {}};
  }
  require(address >= allocation->base, CUDA_ERROR_INVALID_VALUE);
  Operand operand{address, allocation, allocation->location, {}};
  const std::uintptr_t end = address + bytes;
  require(end > address, CUDA_ERROR_INVALID_VALUE);
  std::uintptr_t covered = allocation->base + allocation->bytes;
  while (covered < end) {
    AllocationPtr next = memory.find(covered);
    require(next && next->kind == Allocation::Kind::mapping &&
                allocation->kind == Allocation::Kind::mapping &&
                next->range_base == allocation->range_base,
            CUDA_ERROR_INVALID_VALUE);
    covered = next->base + next->bytes;
    operand.further.push_back(std::move(next));
  }
  return operand;
}

}  // namespace polypath::sim
