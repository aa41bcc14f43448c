/* The arithmetic of the solver, the same on GPUs and on the host to the last bit: sums of two, a product
 * with a power of two, and integers. Both sides are compiled without fused multiply-add. */
#ifndef JACOBI_ARITHMETIC_H
#define JACOBI_ARITHMETIC_H

#include <stdint.h>

#ifdef __CUDACC__
#define JACOBI_BOTH __host__ __device__
#else
#define JACOBI_BOTH
#endif

namespace jacobi {

/// The new value of an element from its neighbours.
JACOBI_BOTH inline float relax(float up, float down, float left, float right) {
  return 0.25f * ((up + down) + (left + right));
}

/// How far an element moved; never negative.
JACOBI_BOTH inline float change(float now, float before) {
  return now < before ? before - now : now - before;
}

/// A permutation of 64 bits: the output function of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
JACOBI_BOTH inline uint64_t mix(uint64_t word) {
  word += 0x9e3779b97f4a7c15u;
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9u;
  word = (word ^ (word >> 27)) * 0x94d049bb133111ebu;
  return word ^ (word >> 31);
}

/// What an element begins with: a multiple of 2^-24 in [0, 1), as if random. `index`: row * columns
/// + column, in the whole grid.
JACOBI_BOTH inline float initial(uint64_t index) {
  return static_cast<float>(mix(index) >> 40) * 0x1p-24f;
}

/// What an element adds to the digest of the grid, modulo 2^64: its place matters as much as its
/// value.
JACOBI_BOTH inline uint64_t digest(uint64_t index, uint32_t bits_of_value) {
  return mix(mix(index) + bits_of_value);
}

}  // namespace jacobi

#endif
