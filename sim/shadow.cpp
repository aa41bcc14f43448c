#include "shadow.hpp"

#include <algorithm>
#include <cstring>

namespace polypath::sim {

const std::byte* Shadow::read(std::size_t offset, std::size_t bytes) {
  prepare(offset, offset + bytes, false);
  return base_ + offset;
}

std::byte* Shadow::overwrite(std::size_t offset, std::size_t bytes) {
  prepare(offset, offset + bytes, true);
  return base_ + offset;
}

void Shadow::write_pattern(std::size_t granule) {
  const std::size_t from = granule * kGranule;
  std::memset(base_ + from, std::to_integer<int>(kPoison), std::min(kGranule, bytes_ - from));
}

/// Prepares the granules of [first, last), all bytes of which are overwritten or none.
void Shadow::prepare(std::size_t first, std::size_t last, bool is_overwritten) {
  for (std::size_t i = first / kGranule; i * kGranule < last; ++i) {
    if (is_touched(i)) continue;
    const bool is_whole = first <= i * kGranule && std::min((i + 1) * kGranule, bytes_) <= last;
    touch(i, is_overwritten && is_whole);
  }
}

}  // namespace polypath::sim
