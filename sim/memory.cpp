#include "memory.hpp"

#include <bit>
#include <utility>

#include "failure.hpp"
#include "private_shadow.hpp"
#include "process.hpp"
#include "shared_shadow.hpp"

namespace polypath::sim {
namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

bool has_shadow(Allocation::Kind kind) {
  return kind == Allocation::Kind::device || kind == Allocation::Kind::pool;
}

bool uses_gpu_memory(const Allocation& allocation) { return allocation.location.is_gpu(); }

}  // namespace

const std::byte* Allocation::read(std::uintptr_t address, std::size_t size) const {
  return shadow ? shadow->read(address - base, size) : std::bit_cast<const std::byte*>(address);
}

std::byte* Allocation::overwrite(std::uintptr_t address, std::size_t size) const {
  return shadow ? shadow->overwrite(address - base, size) : std::bit_cast<std::byte*>(address);
}

Memory::Memory(std::vector<std::uint64_t> gpu_bytes, bool is_shared)
    : free_bytes_(std::move(gpu_bytes)), is_shared_(is_shared) {}

AllocationPtr Memory::add(Allocation wanted) {
  if (uses_gpu_memory(wanted))
    require(wanted.bytes <= free_bytes_[at(wanted.device)], CUDA_ERROR_OUT_OF_MEMORY);
  if (wanted.kind != Allocation::Kind::registered) wanted.base = space_.reserve(wanted.bytes);
  if (has_shadow(wanted.kind))
    wanted.shadow = make_shadow(wanted.bytes);
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
  if (!allocation->shadow && allocation->kind != Allocation::Kind::registered)
    AddressSpace::close(allocation->base, allocation->bytes);
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

AllocationPtr Memory::find_of_context(CUcontext context) const {
  for (const auto& [base, allocation] : allocations_)
    if (allocation->context == context) return allocation;
  return nullptr;
}

std::unique_ptr<Shadow> Memory::make_shadow(std::size_t bytes) const {
  if (!is_shared_) return std::make_unique<PrivateShadow>(bytes);
  return std::make_unique<SharedShadow>(bytes, shared_name(this_process(), next_buffer_id_));
}

}  // namespace polypath::sim
