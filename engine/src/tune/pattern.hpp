// Test contents: a byte is a function of (seed, offset), so that what a buffer should hold is
// computed again where it is checked, at memory speed, and never stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace polypath {

/// Word `index` (8 bytes, little-endian) of the pattern `seed`. The generator is SplitMix64
/// (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014), addressed
/// by word.
constexpr std::uint64_t pattern_word(std::uint64_t seed, std::uint64_t index) noexcept {
  std::uint64_t z = seed + (index + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

/// Writes bytes [offset, offset + memory.size()) of the pattern `seed`. Uses all cores for large
/// ranges; returns when they are done.
void fill_pattern(std::span<std::byte> memory, std::uint64_t seed, std::uint64_t offset = 0);

/// Index in `memory` of the first byte that differs from byte (offset + index) of the pattern
/// `seed`; nothing when all agree.
std::optional<std::uint64_t> first_difference(std::span<const std::byte> memory, std::uint64_t seed,
                                              std::uint64_t offset = 0);

}  // namespace polypath
