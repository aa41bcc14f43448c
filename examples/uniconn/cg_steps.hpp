// Where the steps of conjugate gradients are computed: by kernels on this rank's GPU, or by the
// host on a driver without kernels. Both give the same bits (cg_arithmetic.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cg_matrix.hpp"
#include "gpu.hpp"

namespace uniconn_example {

/// Words of the GPU that the steps of one iteration read, and add to.
struct CgSums {
  const double* squared = nullptr;  ///< of the residual, of all ranks
  double* product = nullptr;        ///< direction times product; 0 before, of all ranks in update()
  double* next_squared = nullptr;   ///< 0 before, of all ranks in turn()
};

/// The steps for one rank's rows. Everything comes after the stream; on the host it also waits.
class CgSteps {
 public:
  virtual ~CgSteps() = default;
  [[nodiscard]] virtual const char* name() const noexcept = 0;

  /// x is 0, residual and direction are the right side; `sum` += its square.
  virtual void begin(double* direction, double* sum) = 0;
  /// product = A x, for the whole vector x, of which `own` are this rank's elements;
  /// sums.product += own . product.
  virtual void multiply(const double* x, const double* own, const CgSums& sums) = 0;
  virtual void update(const double* direction, const CgSums& sums) = 0;
  virtual void turn(double* direction, const CgSums& sums) = 0;

  /// x of this rank, to `to` on the GPU.
  virtual void solution(double* to) = 0;
  /// What multiply() made last.
  virtual std::vector<double> product() = 0;
};

/// By kernels; null where the driver, or this build, has none.
std::unique_ptr<CgSteps> gpu_steps(const Gpu& gpu, const Brick& brick, const Rows& rows);
/// `rows` must live as long.
std::unique_ptr<CgSteps> host_steps(const Gpu& gpu, const Brick& brick, const Rows& rows);
/// "gpu" or "host"; "auto": gpu, else host. Throws std::runtime_error.
std::unique_ptr<CgSteps> cg_steps(const std::string& name, const Gpu& gpu, const Brick& brick,
                                  const Rows& rows);

}  // namespace uniconn_example
