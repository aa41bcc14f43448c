#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <optional>
#include <utility>

#include "base/units.hpp"
#include "failure.hpp"
#include "ipc.hpp"
#include "kept.hpp"
#include "memory.hpp"
#include "shadow.hpp"

namespace polypath::sim {
namespace {

std::size_t place_of(int device) { return static_cast<std::size_t>(device); }

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

void Allocation::clear(std::uintptr_t address, std::size_t size) const {
  if (shadow)
    shadow->clear(address - base, size);
  else
    std::memset(std::bit_cast<std::byte*>(address), 0, size);
}

Memory::Memory(std::vector<std::uint64_t> gpu_bytes, bool is_shared, bool reuses_addresses)
    : space_(reuses_addresses), free_bytes_(std::move(gpu_bytes)), is_shared_(is_shared) {}

AllocationPtr Memory::add(Allocation draft) {
  draft.buffer_id = next_buffer_id();
  // The memory of an import is its owner's, that of a mapping its handle's.
  if (draft.kind == Allocation::Kind::device || draft.kind == Allocation::Kind::pool)
    draft.room = take(draft.device, draft.bytes);
  if (!has_given_base(draft.kind)) draft.base = space_.reserve(draft.bytes);
  if (is_hidden(draft.kind)) {
    if (!draft.shadow) draft.shadow = make_shadow(draft.device, draft.bytes, draft.buffer_id);
  } else if (!has_given_base(draft.kind)) {
    AddressSpace::open(draft.base, draft.bytes);
  }
  auto allocation = std::make_shared<const Allocation>(std::move(draft));
  allocations_.emplace(allocation->base, allocation);
  return allocation;
}

void Memory::remove(const AllocationPtr& allocation) { allocations_.erase(allocation->base); }

void Memory::release(const AllocationPtr& allocation) {
  if (allocation->kind == Allocation::Kind::registered) return;
  if (!is_hidden(allocation->kind)) AddressSpace::close(allocation->base, allocation->bytes);
  if (!has_given_base(allocation->kind)) space_.release(allocation->base, allocation->bytes);
}

std::shared_ptr<void> Memory::take(int device, std::uint64_t bytes) {
  std::uint64_t& left = free_bytes_[place_of(device)];
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

std::uint64_t Memory::free_bytes(int device) const { return free_bytes_[place_of(device)]; }

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
  return std::make_shared<SharedShadow>(SharedShadow::Identity{buffer_id, bytes, device},
                                        file_name(this_process()));
}

}  // namespace polypath::sim

namespace polypath::sim {
namespace {

constexpr std::size_t kPage = 4 * kKiB;
constexpr std::size_t kAlignment = 2 * kMiB;  // of what is large, as the real driver aligns it
constexpr std::size_t kRegion = 64 * kGiB;

std::size_t round_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

/// Address space of an allocation, with an unused page after it.
std::size_t room_for(std::size_t bytes) { return round_up(bytes, kPage) + kPage; }

void* map(void* hint, std::size_t bytes, int access, int flags) {
  void* const address =
      ::mmap(hint, bytes, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
  if (address == MAP_FAILED) throw std::bad_alloc();
  return address;
}

// Pages of host memory that were freed: all zero, as new ones are.

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4  // Linux 5.7; older ones refuse it
#endif
constexpr std::size_t kMinKeptHostBytes = 256 * kKiB;
constexpr std::size_t kMaxKeptHostBytes = 256 * kMiB;
constexpr std::size_t kMaxKeptRanges = 64;

class HostPages {
 public:
  /// Takes the pages away from the range, which stays mapped; none where that cannot be done.
  static std::optional<HostPages> take(std::uintptr_t address, std::size_t bytes) {
    std::vector<unsigned char> states(bytes / kPage);
    void* const from = std::bit_cast<void*>(address);
    if (::mincore(from, bytes, states.data()) != 0) return std::nullopt;
    void* const base = ::mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, nullptr);
    if (base == MAP_FAILED) return std::nullopt;
    HostPages pages(static_cast<std::byte*>(base), bytes);
    pages.clear(states);
    return pages;
  }
  ~HostPages() {
    if (capacity_ > 0) ::munmap(base_, capacity_);
  }
  HostPages(HostPages&& other) noexcept
      : base_(other.base_),
        capacity_(std::exchange(other.capacity_, 0)),
        resident_bytes_(other.resident_bytes_) {}
  HostPages& operator=(HostPages&&) = delete;

  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] std::size_t resident_bytes() const noexcept { return resident_bytes_; }

  /// Puts the first `bytes` to this address; false when the system refuses.
  bool put(std::uintptr_t address, std::size_t bytes) {
    if (::mremap(base_, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
                 std::bit_cast<void*>(address)) == MAP_FAILED)
      return false;
    base_ += bytes;
    capacity_ -= bytes;
    return true;
  }

 private:
  HostPages(std::byte* base, std::size_t capacity) : base_(base), capacity_(capacity) {}

  /// What is in memory is made zero. The rest was never written, or is in a swap file.
  void clear(const std::vector<unsigned char>& states) {
    const auto is_resident = [&](std::size_t page) { return (states[page] & 1U) != 0; };
    for (std::size_t first = 0, last = 0; first < states.size(); first = last) {
      while (last < states.size() && is_resident(last) == is_resident(first)) ++last;
      std::byte* const begin = base_ + first * kPage;
      const std::size_t bytes = (last - first) * kPage;
      if (is_resident(first)) {
        std::memset(begin, 0, bytes);
        resident_bytes_ += bytes;
      } else {
        ::madvise(begin, bytes, MADV_DONTNEED);
      }
    }
  }

  std::byte* base_;
  std::size_t capacity_;
  std::size_t resident_bytes_ = 0;
};

Kept<HostPages>& kept_pages() {
  static auto* const pages = new Kept<HostPages>(kMaxKeptHostBytes, kMaxKeptRanges);
  return *pages;
}

/// Pages keep the NUMA domain that they were first used in, which may be the wrong one for others.
bool can_keep(std::size_t bytes) {
  static const bool has_one_domain = ::access("/sys/devices/system/node/node1", F_OK) != 0;
  return bytes >= kMinKeptHostBytes && has_one_domain;
}

}  // namespace

std::uintptr_t AddressSpace::reserve(std::size_t bytes, std::size_t min_alignment) {
  const std::size_t alignment = std::max(min_alignment, bytes >= kAlignment ? kAlignment : kPage);
  const std::size_t room = room_for(bytes);
  if (const auto free = given_back_.find(room);
      min_alignment == 0 && free != given_back_.end() && !free->second.empty()) {
    const std::uintptr_t address = free->second.back();
    free->second.pop_back();
    return address;
  }
  std::uintptr_t begin = round_up(next_, alignment);
  if (regions_.empty() || begin + room > regions_.back().end) {
    const std::size_t size = std::max(kRegion, room + alignment);
    const auto region = std::bit_cast<std::uintptr_t>(map(nullptr, size, PROT_NONE, 0));
    regions_.push_back({region, region + size});
    begin = round_up(region, alignment);
  }
  next_ = begin + room;
  return begin;
}

void AddressSpace::release(std::uintptr_t address, std::size_t bytes) {
  if (reuses_) given_back_[room_for(bytes)].push_back(address);
}

void AddressSpace::open(std::uintptr_t address, std::size_t bytes) {
  const std::size_t room = round_up(bytes, kPage);
  if (can_keep(room))
    if (std::optional<HostPages> pages = kept_pages().take(room);
        pages && pages->put(address, room))
      return;
  map(std::bit_cast<void*>(address), room, PROT_READ | PROT_WRITE, MAP_FIXED);
}

void AddressSpace::close(std::uintptr_t address, std::size_t bytes) {
  const std::size_t room = round_up(bytes, kPage);
  if (can_keep(room))
    if (std::optional<HostPages> pages = HostPages::take(address, room))
      kept_pages().keep(std::move(*pages));
  map(std::bit_cast<void*>(address), room, PROT_NONE, MAP_FIXED);
}

bool AddressSpace::contains(std::uintptr_t address) const noexcept {
  return std::any_of(regions_.begin(), regions_.end(), [address](const Region& region) {
    return region.begin <= address && address < region.end;
  });
}

const Allocation* Operand::at(std::size_t offset) const {
  const std::uintptr_t target = address + offset;
  if (!allocation || target - allocation->base < allocation->bytes) return allocation.get();
  for (const AllocationPtr& each : further)
    if (target - each->base < each->bytes) return each.get();
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
