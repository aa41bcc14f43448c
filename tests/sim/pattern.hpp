// Contents of test buffers.
#pragma once

#include <cstdint>
#include <vector>

namespace polypath::sim::test {

/// Bytes that differ from one `seed` to the next.
inline std::vector<std::uint8_t> pattern(std::size_t bytes, std::uint8_t seed) {
  std::vector<std::uint8_t> values(bytes);
  std::uint32_t state = seed + 1U;
  for (std::uint8_t& value : values) {
    state = state * 1664525 + 1013904223;
    value = static_cast<std::uint8_t>(state >> 24);
  }
  return values;
}

}  // namespace polypath::sim::test
