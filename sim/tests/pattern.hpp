// Contents of test buffers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace polypath::sim::test {

/// Bytes that differ from one `seed` to the next.
inline std::vector<std::uint8_t> pattern(std::size_t bytes, std::uint8_t seed) {
  std::vector<std::uint8_t> values(bytes);
  std::uint64_t state = seed + 1U;
  for (std::size_t at = 0; at < bytes; at += sizeof state) {
    state = state * 6364136223846793005 + 1442695040888963407;
    std::memcpy(&values[at], &state, std::min(sizeof state, bytes - at));
  }
  return values;
}

}  // namespace polypath::sim::test
