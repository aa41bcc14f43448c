// The kernels of conjugate gradients: one thread block of kThreads for each block of kBlockRows
// rows.
#include "cg_arithmetic.h"

namespace cg {
namespace {

constexpr unsigned int kAll = 0xffffffffu;

/// The sum of a block's threads, to all of the grid's: exact, so in any order.
__device__ void add(double value, double its_magnet, double* sum) {
  __shared__ double of_thread[kThreads];
  of_thread[threadIdx.x] = value;
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) of_thread[threadIdx.x] += of_thread[threadIdx.x + half];
  }
  if (threadIdx.x == 0) atomicAdd(sum, rounded(of_thread[0], its_magnet));
}

__device__ uint64_t row_of(int round) {
  return blockIdx.x * uint64_t{kBlockRows} + threadIdx.x + uint64_t{kThreads} * round;
}

}  // namespace

/// product = A x, for `rows` rows of A; `product_sum` += own . product, where `own` are the
/// elements of x that belong to these rows. `bound`: of the whole sum, a multiple of *squared.
extern "C" __global__ void cg_multiply(const uint64_t* offsets, const int32_t* columns,
                                       const double* values, const double* x, const double* own,
                                       uint64_t rows, double* product, const double* squared,
                                       double norm, double* product_sum) {
  __shared__ double of_row[kBlockRows];
  const unsigned lane = threadIdx.x % kWarp;
  for (unsigned at = threadIdx.x / kWarp; at < kBlockRows; at += kThreads / kWarp) {
    const uint64_t row = blockIdx.x * uint64_t{kBlockRows} + at;
    double sum = 0;
    if (row < rows)
      for (uint64_t entry = offsets[row] + lane; entry < offsets[row + 1]; entry += kWarp)
        sum += values[entry] * x[columns[entry]];
    for (int half = kWarp / 2; half > 0; half /= 2) {
      const double other = __shfl_down_sync(kAll, sum, half);
      if (lane < half) sum += other;
    }
    if (lane == 0) of_row[at] = sum;
  }
  __syncthreads();
  double sum = 0;
  for (int round = 0; round < kBlockRows / kThreads; ++round) {
    const uint64_t row = row_of(round);
    if (row >= rows) break;
    const double row_product = of_row[threadIdx.x + kThreads * round];
    product[row] = row_product;
    sum += own[row] * row_product;
  }
  add(sum, magnet(*squared * norm), product_sum);
}

/// A step along `direction`: x and the residual move, and `next_squared` += the residual's square.
extern "C" __global__ void cg_update(uint64_t rows, const double* direction, const double* product,
                                     double* x, double* residual, const double* squared,
                                     const double* product_sum, double* next_squared) {
  const double length = quotient(*squared, *product_sum);
  double sum = 0;
  for (int round = 0; round < kBlockRows / kThreads; ++round) {
    const uint64_t row = row_of(round);
    if (row >= rows) break;
    x[row] += length * direction[row];
    const double row_residual = residual[row] - length * product[row];
    residual[row] = row_residual;
    sum += row_residual * row_residual;
  }
  add(sum, magnet(*squared), next_squared);
}

/// The next direction.
extern "C" __global__ void cg_turn(uint64_t rows, const double* residual, double* direction,
                                   const double* squared, const double* next_squared) {
  const double part = quotient(*next_squared, *squared);
  for (int round = 0; round < kBlockRows / kThreads; ++round) {
    const uint64_t row = row_of(round);
    if (row >= rows) break;
    direction[row] = residual[row] + part * direction[row];
  }
}

/// `sum` += the square of `values`.
extern "C" __global__ void cg_square(uint64_t rows, const double* values, double bound,
                                     double* its_sum) {
  double sum = 0;
  for (int round = 0; round < kBlockRows / kThreads; ++round) {
    const uint64_t row = row_of(round);
    if (row >= rows) break;
    sum += values[row] * values[row];
  }
  add(sum, magnet(bound), its_sum);
}

}  // namespace cg
