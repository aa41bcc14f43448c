#include "address_space.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <new>

#include "base/units.hpp"

namespace polypath::sim {
namespace {

constexpr std::size_t kPage = 4 * kKiB;
constexpr std::size_t kAlignment = 2 * kMiB;  // of what is large, as the real driver aligns it
constexpr std::size_t kRegion = 64 * kGiB;

std::size_t round_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

/// With a page that belongs to nobody.
std::size_t room_for(std::size_t bytes) { return round_up(bytes, kPage) + kPage; }

void* map(void* wanted, std::size_t bytes, int access, int flags) {
  void* const address =
      ::mmap(wanted, bytes, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
  if (address == MAP_FAILED) throw std::bad_alloc();
  return address;
}

}  // namespace

std::uintptr_t AddressSpace::reserve(std::size_t bytes, std::size_t wanted) {
  const std::size_t alignment = std::max(wanted, bytes >= kAlignment ? kAlignment : kPage);
  const std::size_t room = room_for(bytes);
  if (const auto free = given_back_.find(room);
      wanted == 0 && free != given_back_.end() && !free->second.empty()) {
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

void AddressSpace::give_back(std::uintptr_t address, std::size_t bytes) {
  if (reuses_) given_back_[room_for(bytes)].push_back(address);
}

void AddressSpace::open(std::uintptr_t address, std::size_t bytes) {
  map(std::bit_cast<void*>(address), round_up(bytes, kPage), PROT_READ | PROT_WRITE, MAP_FIXED);
}

void AddressSpace::close(std::uintptr_t address, std::size_t bytes) {
  map(std::bit_cast<void*>(address), round_up(bytes, kPage), PROT_NONE, MAP_FIXED);
}

bool AddressSpace::contains(std::uintptr_t address) const noexcept {
  return std::any_of(regions_.begin(), regions_.end(), [address](const Region& region) {
    return region.begin <= address && address < region.end;
  });
}

}  // namespace polypath::sim
