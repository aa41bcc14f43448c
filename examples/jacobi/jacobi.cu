// The kernels of the solver. A block of rows lies between two halo rows: row 0 and row `rows` + 1.
#include "arithmetic.h"

namespace jacobi {
namespace {

constexpr int kWarp = 32;
constexpr unsigned int kAll = 0xffffffffu;

__device__ uint64_t first_column() { return blockIdx.x * uint64_t{blockDim.x} + threadIdx.x; }
__device__ uint64_t all_threads() { return gridDim.x * uint64_t{blockDim.x}; }

/// The largest of the values of all threads of a block, in thread 0. Not negative, no NaN.
__device__ float largest_of_block(float value) {
  __shared__ float of_warp[kWarp];
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    value = fmaxf(value, __shfl_xor_sync(kAll, value, distance));
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = value;
  __syncthreads();
  if (threadIdx.x < blockDim.x / kWarp) value = fmaxf(value, of_warp[threadIdx.x]);
  for (int distance = kWarp / 2; threadIdx.x < kWarp && distance > 0; distance /= 2)
    value = fmaxf(value, __shfl_xor_sync(kAll, value, distance));
  return value;
}

}  // namespace

/// Gives `rows` rows their initial values; the first is `first_row` of the whole grid.
extern "C" __global__ void jacobi_begin(float* values, uint64_t first_row, uint64_t rows,
                                        uint64_t columns) {
  for (uint64_t column = first_column(); column < columns; column += all_threads())
    for (uint64_t row = 0; row < rows; ++row)
      values[row * columns + column] = initial((first_row + row) * columns + column);
}

/// One iteration. `residual` becomes the largest change, if that is larger: its bits are compared,
/// as they are ordered like the values that are not negative. The grid's y deals out the rows.
extern "C" __global__ void jacobi_step(const float* from, float* to, uint64_t rows,
                                       uint64_t columns, unsigned int* residual) {
  float largest = 0;
  const uint64_t first = rows * blockIdx.y / gridDim.y + 1;
  const uint64_t behind = rows * (blockIdx.y + 1) / gridDim.y + 1;
  for (uint64_t column = first_column(); column < columns; column += all_threads()) {
    const bool fixed = column == 0 || column == columns - 1;
    float up = from[(first - 1) * columns + column];
    float here = from[first * columns + column];
    for (uint64_t row = first; row < behind; ++row) {
      const uint64_t at = row * columns + column;
      const float down = from[at + columns];
      const float now = fixed ? here : relax(up, down, from[at - 1], from[at + 1]);
      to[at] = now;
      largest = fmaxf(largest, change(now, here));
      up = here;
      here = down;
    }
  }
  largest = largest_of_block(largest);
  if (threadIdx.x == 0) atomicMax(residual, __float_as_uint(largest));
}

/// Adds the digest of `rows` rows to `sum`; the first is `first_row` of the whole grid.
extern "C" __global__ void jacobi_digest(const float* values, uint64_t first_row, uint64_t rows,
                                         uint64_t columns, unsigned long long* sum) {
  unsigned long long part = 0;
  for (uint64_t column = first_column(); column < columns; column += all_threads())
    for (uint64_t row = 0; row < rows; ++row)
      part += digest((first_row + row) * columns + column,
                     __float_as_uint(values[row * columns + column]));
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    part += __shfl_xor_sync(kAll, part, distance);
  if (threadIdx.x % kWarp == 0) atomicAdd(sum, part);
}

}  // namespace jacobi
