/* What conjugate gradients compute, the same on GPUs and on the host to the last bit. Both sides are
 * compiled without fused multiply-add.
 *
 * A sum over all rows must not depend on how rows are dealt out to ranks, nor on the order in which a
 * library adds ranks. So rows come in blocks, each block is summed in one order, and its sum is
 * rounded to a multiple of a quantum that all ranks know. Sums of such multiples are exact as long as
 * they stay below 2^53 quanta: then every order gives the same bits. */
#ifndef UNICONN_CG_ARITHMETIC_H
#define UNICONN_CG_ARITHMETIC_H

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define CG_BOTH __host__ __device__
#else
#define CG_BOTH
#endif

namespace cg {

/// Rows of a block; ranks have whole blocks.
constexpr int kBlockRows = 1024;
/// Each of kThreads threads sums every kThreads-th row of a block; then halves are added to halves.
constexpr int kThreads = 256;
/// Each of kWarp threads sums every kWarp-th entry of a row; then as above.
constexpr int kWarp = 32;
/// A sum may be 2^kRoom times as large as was foreseen, and still be exact.
constexpr int kRoom = 8;

/// Rounding to the quantum of sums that are foreseen to be at most about `bound` (not negative):
/// x + m - m, with m = 1.5 times a power of two, whose last bit is the quantum. 0 of 0.
CG_BOTH inline double magnet(double bound) {
  uint64_t bits = 0;
  memcpy(&bits, &bound, sizeof bits);
  bits &= uint64_t{0x7ff} << 52;  // the power of two in it
  double power = 0;
  memcpy(&power, &bits, sizeof power);
  return power * (1.5 * (1 << (kRoom + 1)));
}
CG_BOTH inline double rounded(double value, double magnet) { return (value + magnet) - magnet; }

/// 0 where the search has come to its end, to the last bit.
CG_BOTH inline double quotient(double dividend, double by) { return by == 0 ? 0 : dividend / by; }

}  // namespace cg

#endif
