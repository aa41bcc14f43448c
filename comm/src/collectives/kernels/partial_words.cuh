// Words of 8 bytes of user memory that is not aligned to words, and the last of a piece.
//
// Functions of their own, which few calls need: the others stay short, and have the registers.
#pragma once

#include <cstdint>

#include "simt/platform.cuh"

namespace polypath {

namespace detail {

/// The largest access that a piece allows everywhere: 1, 2, 4 or 8 bytes.
SIMT_DEVICE std::uint32_t step_of(const unsigned char* piece, std::uint32_t length) {
  const std::uint64_t bits = reinterpret_cast<std::uintptr_t>(piece) | length | 8;
  return static_cast<std::uint32_t>(bits & (~bits + 1));
}

template <typename Unsigned>
SIMT_DEVICE std::uint64_t load_steps(const unsigned char* from, std::uint32_t bytes) {
  std::uint64_t word = 0;
  POLYPATH_NO_UNROLL
  for (std::uint32_t b = 0; b < bytes; b += sizeof(Unsigned))
    word |= std::uint64_t{simt::load_streaming(reinterpret_cast<const Unsigned*>(from + b))}
            << (8 * b);
  return word;
}
template <typename Unsigned>
SIMT_DEVICE void store_steps(unsigned char* to, std::uint32_t bytes, std::uint64_t word) {
  POLYPATH_NO_UNROLL
  for (std::uint32_t b = 0; b < bytes; b += sizeof(Unsigned))
    simt::store_streaming(reinterpret_cast<Unsigned*>(to + b),
                          static_cast<Unsigned>(word >> (8 * b)));
}

}  // namespace detail

/// The 8 bytes at `place` of a piece of `length`; those after its end are 0.
SIMT_DEVICE_NOINLINE std::uint64_t load_partial_word(const unsigned char* piece,
                                                     std::uint32_t place, std::uint32_t length) {
  if (place >= length) return 0;
  const std::uint32_t bytes = length - place < 8 ? length - place : 8;
  const unsigned char* const from = piece + place;
  switch (detail::step_of(piece, length)) {
    case 1: return detail::load_steps<std::uint8_t>(from, bytes);
    case 2: return detail::load_steps<std::uint16_t>(from, bytes);
    case 4: return detail::load_steps<std::uint32_t>(from, bytes);
    default: return detail::load_steps<std::uint64_t>(from, bytes);
  }
}
/// Stores the 8 bytes there; those after the end of the piece nowhere.
SIMT_DEVICE_NOINLINE void store_partial_word(unsigned char* piece, std::uint32_t place,
                                             std::uint32_t length, std::uint64_t word) {
  if (place >= length) return;
  const std::uint32_t bytes = length - place < 8 ? length - place : 8;
  unsigned char* const to = piece + place;
  switch (detail::step_of(piece, length)) {
    case 1: return detail::store_steps<std::uint8_t>(to, bytes, word);
    case 2: return detail::store_steps<std::uint16_t>(to, bytes, word);
    case 4: return detail::store_steps<std::uint32_t>(to, bytes, word);
    default: return detail::store_steps<std::uint64_t>(to, bytes, word);
  }
}

}  // namespace polypath
