#include "memory.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "failure.hpp"
#include "ipc.hpp"
#include "private_shadow.hpp"
#include "shared_shadow.hpp"

namespace polypath::sim {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

bool has_shadow(Allocation::Kind kind) {
  return kind == Allocation::Kind::device || kind == Allocation::Kind::pool ||
         kind == Allocation::Kind::imported;
}

/// The memory of an import is its owner's.
bool uses_gpu_memory(const Allocation& allocation) {
  return allocation.location.is_gpu() && !allocation.import;
}

}  // namespace

const std::byte* Allocation::read(std::uintptr_t address, std::size_t size) const {
  return shadow ? shadow->read(address - base, size) : std::bit_cast<const std::byte*>(address);
}

std::byte* Allocation::overwrite(std::uintptr_t address, std::size_t size) const {
  return shadow ? shadow->overwrite(address - base, size) : std::bit_cast<std::byte*>(address);
}

Memory::Memory(std::vector<std::uint64_t> gpu_bytes, bool is_shared, bool reuses_addresses)
    : space_(reuses_addresses), free_bytes_(std::move(gpu_bytes)), is_shared_(is_shared) {}

AllocationPtr Memory::add(Allocation wanted) {
  if (uses_gpu_memory(wanted))
    require(wanted.bytes <= free_bytes_[at(wanted.device)], CUDA_ERROR_OUT_OF_MEMORY);
  if (wanted.kind != Allocation::Kind::registered) wanted.base = space_.reserve(wanted.bytes);
  if (has_shadow(wanted.kind))
    wanted.shadow = wanted.shadow ? std::move(wanted.shadow) : make_shadow(wanted);
  else if (wanted.kind != Allocation::Kind::registered)
    AddressSpace::open(wanted.base, wanted.bytes);
  if (uses_gpu_memory(wanted)) free_bytes_[at(wanted.device)] -= wanted.bytes;
  wanted.buffer_id = next_buffer_id_++;
  auto allocation = std::make_shared<const Allocation>(std::move(wanted));
  allocations_.emplace(allocation->base, allocation);
  return allocation;
}

void Memory::remove(const AllocationPtr& allocation) { allocations_.erase(allocation->base); }

void Memory::give_back(const AllocationPtr& allocation) {
  if (uses_gpu_memory(*allocation)) free_bytes_[at(allocation->device)] += allocation->bytes;
  if (allocation->kind == Allocation::Kind::registered) return;
  if (!allocation->shadow) AddressSpace::close(allocation->base, allocation->bytes);
  space_.give_back(allocation->base, allocation->bytes);
}

AllocationPtr Memory::find(std::uintptr_t address) const { return find_overlap(address, 1); }

AllocationPtr Memory::find_overlap(std::uintptr_t address, std::size_t bytes) const {
  auto next = allocations_.upper_bound(address);
  if (next != allocations_.begin()) {
    const AllocationPtr& before = std::prev(next)->second;
    if (address - before->base < before->bytes) return before;
  }
  if (next != allocations_.end() && next->first - address < bytes) return next->second;
  return nullptr;
}

std::uint64_t Memory::free_bytes(int device) const { return free_bytes_[at(device)]; }

AllocationPtr Memory::find_base(std::uintptr_t address,
                                std::initializer_list<Allocation::Kind> kinds,
                                CUresult otherwise) const {
  AllocationPtr allocation = find(address);
  require(allocation && allocation->base == address, otherwise);
  require(std::find(kinds.begin(), kinds.end(), allocation->kind) != kinds.end(), otherwise);
  return allocation;
}

AllocationPtr Memory::find_if(const std::function<bool(const Allocation&)>& fits) const {
  for (const auto& [base, allocation] : allocations_)
    if (fits(*allocation)) return allocation;
  return nullptr;
}

std::unique_ptr<Shadow> Memory::make_shadow(const Allocation& wanted) const {
  if (!is_shared_) return std::make_unique<PrivateShadow>(wanted.bytes);
  const SharedMemory shared{this_process(), -1, wanted.device, next_buffer_id_, wanted.bytes};
  return std::make_unique<SharedShadow>(wanted.bytes, file_name(shared));
}

}  // namespace polypath::sim
