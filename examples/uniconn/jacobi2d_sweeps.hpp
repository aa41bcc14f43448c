// Where a Jacobi sweep is computed: on this rank's GPU, or by the host on a driver without kernels.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gpu.hpp"

namespace uniconn_example {

/// The grid's rows are a ring, its first and last column never change (examples/jacobi). A block of
/// rows lies between two halo rows, numbers 0 and rows + 1.
struct Grid {
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
};

/// One sweep's arguments, those of the kernel jacobi_step; read at each launch.
struct Sweep {
  const float* from = nullptr;  ///< with the halo
  float* to = nullptr;
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
  std::uint32_t* residual = nullptr;  ///< becomes the largest change's bits; 0 before

  void* args[5] = {&from, &to, &rows, &columns, &residual};
  Sweep() = default;
  Sweep(const Sweep&) = delete;
  Sweep& operator=(const Sweep&) = delete;
};

class Sweeps {
 public:
  virtual ~Sweeps() = default;
  [[nodiscard]] virtual const char* name() const noexcept = 0;

  /// Initial values for `count` rows; the first is row `first` of the grid, or that past its end.
  virtual void begin(float* values, std::uint64_t first, std::uint64_t count, const Grid& grid) = 0;
  /// The kernel, to be launched with grid_of() and kThreads; null where there is none: then run()
  /// does a sweep after the stream.
  [[nodiscard]] virtual CUfunc_st* kernel() const noexcept { return nullptr; }
  virtual void run(const Sweep& sweep) = 0;
  /// The sum of the digests of `count` rows, modulo 2^64.
  virtual std::uint64_t digest(const float* values, std::uint64_t first, std::uint64_t count,
                               const Grid& grid) = 0;

  static constexpr Extent kThreads{256};
  static Extent grid_of(const Sweep& sweep);
};

/// By kernels; null where the driver, or this build, has none.
std::unique_ptr<Sweeps> gpu_sweeps(const Gpu& gpu);
/// On the host: the block is copied there and back in every sweep.
std::unique_ptr<Sweeps> host_sweeps(const Gpu& gpu);
/// For figures of a simulated node, where kernels take no time: a sweep copies the block within the
/// GPU's memory, twice, which is what a kernel reads and writes, and computes nothing.
std::unique_ptr<Sweeps> timed_sweeps(const Gpu& gpu);
/// "gpu", "host" or "timed"; "auto": gpu, else host. Throws std::runtime_error.
std::unique_ptr<Sweeps> sweeps(const std::string& name, const Gpu& gpu);

struct JacobiResult {
  std::vector<float> residuals;  ///< the largest change of an element, by iteration
  std::uint64_t digest = 0;      ///< of the whole grid after the last one
  double iteration_us = 0;       ///< of the timed ones, of the slowest rank
};

/// The same on one host, by sweeps over the whole grid; without times.
JacobiResult jacobi2d_alone(const Grid& grid, int iterations);

}  // namespace uniconn_example
