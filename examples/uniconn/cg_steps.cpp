#include "cg_steps.hpp"

#include <algorithm>
#include <array>

#include "cg_arithmetic.h"
#include "cg_arrays.hpp"
#include "cg_image.hpp"

namespace uniconn_example {
namespace {

/// A right side's elements are below 1.
double bound_of_square(const Brick& brick) { return static_cast<double>(brick.rows()); }

class GpuSteps final : public CgSteps {
 public:
  GpuSteps(const Gpu& gpu, CUmod_st* module, const Brick& brick, const Rows& rows)
      : gpu_(gpu),
        multiply_(gpu.kernel(module, "cg_multiply")),
        update_(gpu.kernel(module, "cg_update")),
        turn_(gpu.kernel(module, "cg_turn")),
        square_(gpu.kernel(module, "cg_square")),
        arrays_(gpu, rows),
        norm_(brick.norm()),
        bound_(bound_of_square(brick)) {}

  [[nodiscard]] const char* name() const noexcept override { return "gpu"; }

  void begin(double* direction, double* sum) override {
    gpu_.write(direction, arrays_.begin());
    void* args[] = {&arrays_.rows, &arrays_.residual, &bound_, &sum};
    launch(square_, args);
  }
  void multiply(const double* x, const double* own, const CgSums& sums) override {
    CgSums local_sums = sums;
    void* args[] = {
        &arrays_.offsets, &arrays_.columns, &arrays_.values,     &x,     &own,
        &arrays_.rows,    &arrays_.product, &local_sums.squared, &norm_, &local_sums.product};
    launch(multiply_, args);
  }
  void update(const double* direction, const CgSums& sums) override {
    CgSums local_sums = sums;
    void* args[] = {
        &arrays_.rows,     &direction,          &arrays_.product,    &arrays_.solution,
        &arrays_.residual, &local_sums.squared, &local_sums.product, &local_sums.next_squared};
    launch(update_, args);
  }
  void turn(double* direction, const CgSums& sums) override {
    CgSums local_sums = sums;
    void* args[] = {&arrays_.rows, &arrays_.residual, &direction, &local_sums.squared,
                    &local_sums.next_squared};
    launch(turn_, args);
  }
  void solution(double* to) override { arrays_.copy_solution(to); }
  std::vector<double> product() override {
    return gpu_.read<double>(arrays_.product, arrays_.rows);
  }

 private:
  void launch(CUfunc_st* kernel, void** args) const {
    const auto blocks = static_cast<unsigned>((arrays_.rows + cg::kBlockRows - 1) / cg::kBlockRows);
    if (blocks == 0) return;
    gpu_.cuda.check(
        gpu_.cuda.launch(kernel, blocks, 1, 1, cg::kThreads, 1, 1, 0, gpu_.stream, args, nullptr),
        "cuLaunchKernel");
  }

  const Gpu& gpu_;
  CUfunc_st* multiply_;
  CUfunc_st* update_;
  CUfunc_st* turn_;
  CUfunc_st* square_;
  CgArrays arrays_;
  double norm_;
  double bound_;
};

/// The upper half onto the lower, until one is left: as the kernels' threads do.
template <std::size_t Count>
double folded(std::array<double, Count>& values) {
  for (std::size_t half = Count / 2; half > 0; half /= 2)
    for (std::size_t i = 0; i < half; ++i) values[i] += values[i + half];
  return values[0];
}

class HostSteps final : public CgSteps {
 public:
  HostSteps(const Gpu& gpu, const Brick& brick, const Rows& rows)
      : gpu_(gpu), brick_(brick), rows_(rows), product_(rows.count()) {}

  [[nodiscard]] const char* name() const noexcept override { return "host"; }

  void begin(double* direction, double* sum) override {
    x_.assign(rows_.count(), 0);
    residual_ = right_side(rows_.first, rows_.count());
    gpu_.write(direction, residual_);
    add(bound_of_square(brick_), sum,
        [&](std::uint64_t row) { return residual_[row] * residual_[row]; });
  }
  void multiply(const double* x, const double* own, const CgSums& sums) override {
    const auto all = gpu_.read<double>(x, brick_.rows());
    const double* const own_values = all.data() + (own - x);
    add(word(sums.squared) * brick_.norm(), sums.product, [&](std::uint64_t row) {
      std::array<double, cg::kWarp> of_lane{};
      for (std::uint64_t at = rows_.offsets[row]; at < rows_.offsets[row + 1]; ++at)
        of_lane[(at - rows_.offsets[row]) % cg::kWarp] +=
            rows_.values[at] * all[static_cast<std::size_t>(rows_.columns[at])];
      product_[row] = folded(of_lane);
      return own_values[row] * product_[row];
    });
  }
  void update(const double* direction, const CgSums& sums) override {
    const double squared = word(sums.squared);
    const double length = cg::quotient(squared, word(sums.product));
    const auto along = gpu_.read<double>(direction, rows_.count());
    add(squared, sums.next_squared, [&](std::uint64_t row) {
      x_[row] += length * along[row];
      residual_[row] -= length * product_[row];
      return residual_[row] * residual_[row];
    });
  }
  void turn(double* direction, const CgSums& sums) override {
    const double part = cg::quotient(word(sums.next_squared), word(sums.squared));
    auto along = gpu_.read<double>(direction, rows_.count());
    for (std::uint64_t row = 0; row < rows_.count(); ++row)
      along[row] = residual_[row] + part * along[row];
    gpu_.write(direction, along);
  }
  void solution(double* to) override { gpu_.write(to, x_); }
  std::vector<double> product() override { return product_; }

 private:
  [[nodiscard]] double word(const double* address) const {
    return gpu_.read<double>(address, 1).front();
  }

  /// What `term` gives for each row, to the word `sum`.
  template <typename Term>
  void add(double bound, double* sum, const Term& term) const {
    const double magnet = cg::magnet(bound);
    double total = word(sum);
    for (std::uint64_t block = 0; block < rows_.count(); block += cg::kBlockRows) {
      std::array<double, cg::kThreads> of_thread{};
      const std::uint64_t end = std::min<std::uint64_t>(block + cg::kBlockRows, rows_.count());
      for (std::uint64_t row = block; row < end; ++row)
        of_thread[(row - block) % cg::kThreads] += term(row);
      total += cg::rounded(folded(of_thread), magnet);
    }
    gpu_.write(sum, &total, sizeof total);
  }

  const Gpu& gpu_;
  Brick brick_;
  const Rows& rows_;
  std::vector<double> product_;
  std::vector<double> x_;
  std::vector<double> residual_;
};

}  // namespace

std::unique_ptr<CgSteps> gpu_steps(const Gpu& gpu, const Brick& brick, const Rows& rows) {
  CUmod_st* const module = gpu.load(cg::cg_image(), "cg_multiply");
  return module == nullptr ? nullptr : std::make_unique<GpuSteps>(gpu, module, brick, rows);
}
std::unique_ptr<CgSteps> host_steps(const Gpu& gpu, const Brick& brick, const Rows& rows) {
  return std::make_unique<HostSteps>(gpu, brick, rows);
}
std::unique_ptr<CgSteps> cg_steps(const std::string& name, const Gpu& gpu, const Brick& brick,
                                  const Rows& rows) {
  if (name == "host") return host_steps(gpu, brick, rows);
  if (name != "gpu" && name != "auto") throw std::runtime_error("--compute is auto, gpu or host");
  if (auto steps = gpu_steps(gpu, brick, rows)) return steps;
  if (name == "gpu")
    throw std::runtime_error("--compute gpu: this driver, or this build, has no kernels");
  return host_steps(gpu, brick, rows);
}

}  // namespace uniconn_example
