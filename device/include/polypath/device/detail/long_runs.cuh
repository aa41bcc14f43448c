// Groups of many messages or receives of one key, as bitmaps of their indices in shared memory.
#pragma once

#include "polypath/device/detail/bits.cuh"
#include "polypath/device/detail/mutants.hpp"
#include "polypath/device/detail/table_memory.cuh"
#include "polypath/device/envelope.hpp"

namespace polypath::device::detail {

template <unsigned kWords>
struct long_run {
  std::uint32_t* bits;
  std::uint16_t* before;

  /// By one thread.
  POLYPATH_DEVICE void begin() const {
    for (unsigned word = 0; word < kWords; ++word) bits[word] = 0;
  }
  POLYPATH_DEVICE void set(std::uint32_t i) const { in_shared::set(bits + i / 32, 1U << i % 32); }
  POLYPATH_DEVICE void clear(std::uint32_t i) const {
    in_shared::unset(bits + i / 32, 1U << i % 32);
  }
  /// By a warp, when all are set; the following are right after it.
  POLYPATH_DEVICE void count(unsigned lane) const {
    const std::uint32_t own = lane < kWords ? popcount(bits[lane]) : 0;
    const std::uint32_t up_to_me = sum_up_to_me(own);
    if (lane < kWords) before[lane] = static_cast<std::uint16_t>(up_to_me - own);
  }
  /// How many are less than `i`.
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t rank(std::uint32_t i) const {
    std::uint32_t lower = (1U << i % 32) - 1;
    POLYPATH_MUTANT(match_mutant::any_order_of_long_groups, lower = ~lower)
    return before[i / 32] + popcount(bits[i / 32] & lower);
  }
  /// kNone: there are no more.
  [[nodiscard]] POLYPATH_DEVICE std::uint32_t of_rank(std::uint32_t rank) const {
    std::uint32_t word = 0;
    POLYPATH_UNROLL
    for (unsigned step = kWords / 2; step > 0; step /= 2)
      if (before[word + step] <= rank) word += step;
    const std::uint32_t n = rank - before[word];
    return n < popcount(bits[word]) ? word * 32 + select_bit(bits[word], n) : kNone;
  }
};

}  // namespace polypath::device::detail
