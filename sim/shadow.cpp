#include "shadow.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace polypath::sim {

Shadow::Shadow(std::size_t bytes)
    : bytes_(bytes), touched_((bytes + kGranule - 1) / kGranule, false) {
  void* const base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) throw std::bad_alloc();
  base_ = static_cast<std::byte*>(base);
}

Shadow::~Shadow() { ::munmap(base_, bytes_); }

const std::byte* Shadow::read(std::size_t offset, std::size_t bytes) {
  poison(offset, offset + bytes, 0, 0);
  return base_ + offset;
}

std::byte* Shadow::overwrite(std::size_t offset, std::size_t bytes) {
  poison(offset, offset + bytes, offset, offset + bytes);
  return base_ + offset;
}

/// Prepares the granules of [first, last); those inside [keep_from, keep_to) are about to be written
/// and need no pattern.
void Shadow::poison(std::size_t first, std::size_t last, std::size_t keep_from,
                    std::size_t keep_to) {
  for (std::size_t i = first / kGranule; i * kGranule < last; ++i) {
    if (touched_[i]) continue;
    touched_[i] = true;
    const std::size_t from = i * kGranule;
    const std::size_t to = std::min(from + kGranule, bytes_);
    if (keep_from <= from && to <= keep_to) continue;
    std::memset(base_ + from, std::to_integer<int>(kPoison), to - from);
  }
}

}  // namespace polypath::sim
