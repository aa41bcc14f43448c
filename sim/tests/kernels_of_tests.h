// What the kernels of these tests and their launchers agree on.
#pragma once

#include <cstddef>
#include <cstdint>

namespace polypath::sim::test {

inline constexpr unsigned kMaxGpus = 4;

/// A sum over all GPUs, pushed: every block sends a slice of its part to each owner's scratch,
/// owners sum in order and send the results to all GPUs.
struct PushArgs {
  unsigned rank;
  unsigned ranks;
  std::uint64_t round;  ///< flags count from it; one more for each launch
  std::size_t count;    ///< floats; a multiple of 4 x ranks x blocks
  const float* in;
  float* out;
  float* scratch[kMaxGpus];        ///< (ranks + 1) x count / ranks floats, then the results: count
  std::uint64_t* flags[kMaxGpus];  ///< 2 x blocks x ranks, 0 at first
  const std::uint32_t* abort;
};

}  // namespace polypath::sim::test
