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

/// The bytes of these are where the devices alone use them.
bool is_hidden(Allocation::Kind kind) {
  return kind == Allocation::Kind::device || kind == Allocation::Kind::pool ||
         kind == Allocation::Kind::imported;
}

bool has_given_base(Allocation::Kind kind) {
  return kind == Allocation::Kind::registered || kind == Allocation::Kind::mapping;
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
  wanted.buffer_id = next_buffer_id();
  // The memory of an import is its owner's, that of a mapping its handle's.
  if (wanted.kind == Allocation::Kind::device || wanted.kind == Allocation::Kind::pool)
    wanted.room = take(wanted.device, wanted.bytes);
  if (!has_given_base(wanted.kind)) wanted.base = space_.reserve(wanted.bytes);
  if (is_hidden(wanted.kind)) {
    if (!wanted.shadow) wanted.shadow = make_shadow(wanted.device, wanted.bytes, wanted.buffer_id);
  } else if (!has_given_base(wanted.kind)) {
    AddressSpace::open(wanted.base, wanted.bytes);
  }
  auto allocation = std::make_shared<const Allocation>(std::move(wanted));
  allocations_.emplace(allocation->base, allocation);
  return allocation;
}

void Memory::remove(const AllocationPtr& allocation) { allocations_.erase(allocation->base); }

void Memory::give_back(const AllocationPtr& allocation) {
  if (allocation->kind == Allocation::Kind::registered) return;
  if (!is_hidden(allocation->kind)) AddressSpace::close(allocation->base, allocation->bytes);
  if (!has_given_base(allocation->kind)) space_.give_back(allocation->base, allocation->bytes);
}

std::shared_ptr<void> Memory::take(int device, std::uint64_t bytes) {
  std::uint64_t& left = free_bytes_[at(device)];
  require(bytes <= left, CUDA_ERROR_OUT_OF_MEMORY);
  left -= bytes;
  return {&left, [bytes](std::uint64_t* all) { *all += bytes; }};
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

std::shared_ptr<Shadow> Memory::make_shadow(int device, std::size_t bytes,
                                            std::uint64_t buffer_id) const {
  if (!is_shared_) return std::make_shared<PrivateShadow>(bytes);
  const SharedMemory shared{this_process(), -1, device, buffer_id, bytes};
  return std::make_shared<SharedShadow>(bytes, file_name(shared));
}

}  // namespace polypath::sim
