#include "private_shadow.hpp"

#include <sys/mman.h>

#include <new>

namespace polypath::sim {

PrivateShadow::PrivateShadow(std::size_t bytes) : Shadow(bytes), touched_(granules(bytes), false) {
  void* const base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) throw std::bad_alloc();
  base_ = static_cast<std::byte*>(base);
}

PrivateShadow::~PrivateShadow() { ::munmap(base_, size()); }

void PrivateShadow::touch(std::size_t granule, bool is_overwritten) {
  touched_[granule] = true;
  if (!is_overwritten) write_pattern(granule);
}

}  // namespace polypath::sim
