#include "jacobi2d_sweeps.hpp"

#include <algorithm>
#include <bit>

#include "kernel_image.hpp"
#include "sweep.hpp"

namespace uniconn_example {
namespace {

/// The least blocks of a sweep, if there are enough rows.
constexpr std::uint64_t kBlocks = 2048;
constexpr std::uint64_t kMaxColumnBlocks = 4096;

class GpuSweeps final : public Sweeps {
 public:
  GpuSweeps(const Gpu& gpu, CUmod_st* module)
      : gpu_(gpu),
        begin_(gpu.kernel(module, "jacobi_begin")),
        step_(gpu.kernel(module, "jacobi_step")),
        digest_(gpu.kernel(module, "jacobi_digest")) {
    gpu.cuda.check(gpu.cuda.alloc(&sum_, sizeof(std::uint64_t)), "cuMemAlloc");
  }
  ~GpuSweeps() override { gpu_.cuda.free(sum_); }

  [[nodiscard]] const char* name() const noexcept override { return "gpu"; }
  [[nodiscard]] CUfunc_st* kernel() const noexcept override { return step_; }
  void run(const Sweep& sweep) override {
    const Extent blocks = grid_of(sweep);
    launch(step_, blocks.x, blocks.y, const_cast<void**>(sweep.args));
  }

  void begin(float* values, std::uint64_t first, std::uint64_t count, const Grid& grid) override {
    for (std::uint64_t done = 0; done < count;) {
      // A kernel's rows do not go around the ring.
      std::uint64_t row = (first + done) % grid.rows;
      std::uint64_t now = std::min(count - done, grid.rows - row);
      std::uint64_t columns = grid.columns;
      float* here = values + done * columns;
      void* args[] = {&here, &row, &now, &columns};
      launch(begin_, blocks_of(columns), 1, args);
      done += now;
    }
  }

  std::uint64_t digest(const float* values, std::uint64_t first, std::uint64_t count,
                       const Grid& grid) override {
    void* sum = reinterpret_cast<void*>(sum_);
    std::uint64_t columns = grid.columns;
    gpu_.zero(sum, sizeof(std::uint64_t));
    void* args[] = {&values, &first, &count, &columns, &sum};
    launch(digest_, blocks_of(columns), 1, args);
    return gpu_.read<std::uint64_t>(sum, 1).front();
  }

  static unsigned blocks_of(std::uint64_t columns) {
    return static_cast<unsigned>(
        std::min((columns + kThreads.x - 1) / kThreads.x, kMaxColumnBlocks));
  }

 private:
  void launch(CUfunc_st* kernel, unsigned x, unsigned y, void** args) const {
    gpu_.cuda.check(
        gpu_.cuda.launch(kernel, x, y, 1, kThreads.x, 1, 1, 0, gpu_.stream, args, nullptr),
        "cuLaunchKernel");
  }

  const Gpu& gpu_;
  CUfunc_st* begin_;
  CUfunc_st* step_;
  CUfunc_st* digest_;
  uc::detail::DevicePointer sum_ = 0;
};

class HostSweeps : public Sweeps {
 public:
  explicit HostSweeps(const Gpu& gpu) : gpu_(gpu) {}
  [[nodiscard]] const char* name() const noexcept override { return "host"; }

  void begin(float* values, std::uint64_t first, std::uint64_t count, const Grid& grid) override {
    before_.resize(count * grid.columns);
    jacobi::begin_rows(before_.data(), first, count, grid.rows, grid.columns);
    gpu_.write(values, before_);
  }
  void run(const Sweep& sweep) override {
    before_.resize((sweep.rows + 2) * sweep.columns);
    after_.resize(sweep.rows * sweep.columns);
    gpu_.read(before_.data(), sweep.from, before_.size() * sizeof(float));
    const float largest = jacobi::sweep(before_.data(), after_.data(), sweep.rows, sweep.columns);
    gpu_.write(sweep.to + sweep.columns, after_);
    gpu_.write(sweep.residual, &largest, sizeof largest);
  }
  std::uint64_t digest(const float* values, std::uint64_t first, std::uint64_t count,
                       const Grid& grid) override {
    const auto own_rows = gpu_.read<float>(values, count * grid.columns);
    return jacobi::digest_rows(own_rows.data(), first, count, grid.columns);
  }

 protected:
  const Gpu& gpu_;

 private:
  std::vector<float> before_;
  std::vector<float> after_;
};

class TimedSweeps final : public HostSweeps {
 public:
  using HostSweeps::HostSweeps;
  [[nodiscard]] const char* name() const noexcept override { return "timed"; }
  void run(const Sweep& sweep) override {
    const std::size_t bytes = sweep.rows * sweep.columns * sizeof(float);
    for (int time = 0; time < 2; ++time)
      gpu_.cuda.check(
          gpu_.cuda.copy(uc::detail::device(sweep.to + sweep.columns),
                         uc::detail::device(sweep.from + sweep.columns), bytes, gpu_.stream),
          "cuMemcpyAsync");
  }
};

}  // namespace

Extent Sweeps::grid_of(const Sweep& sweep) {
  const unsigned across = GpuSweeps::blocks_of(sweep.columns);
  const auto down = std::min<std::uint64_t>(sweep.rows, (kBlocks + across - 1) / across);
  return {across, static_cast<unsigned>(std::max<std::uint64_t>(down, 1)), 1};
}

std::unique_ptr<Sweeps> gpu_sweeps(const Gpu& gpu) {
  CUmod_st* const module = gpu.load(jacobi::jacobi_image(), "jacobi_step");
  return module == nullptr ? nullptr : std::make_unique<GpuSweeps>(gpu, module);
}
std::unique_ptr<Sweeps> host_sweeps(const Gpu& gpu) { return std::make_unique<HostSweeps>(gpu); }
std::unique_ptr<Sweeps> timed_sweeps(const Gpu& gpu) { return std::make_unique<TimedSweeps>(gpu); }

std::unique_ptr<Sweeps> sweeps(const std::string& name, const Gpu& gpu) {
  if (name == "host") return host_sweeps(gpu);
  if (name == "timed") return timed_sweeps(gpu);
  if (name != "gpu" && name != "auto")
    throw std::runtime_error("--compute is auto, gpu, host or timed");
  if (auto gpu_compute = gpu_sweeps(gpu)) return gpu_compute;
  if (name == "gpu")
    throw std::runtime_error("--compute gpu: this driver, or this build, has no kernels");
  return host_sweeps(gpu);
}

JacobiResult jacobi2d_alone(const Grid& grid, int iterations) {
  JacobiResult result;
  const std::uint64_t columns = grid.columns;
  std::vector<float> now((grid.rows + 2) * columns);
  std::vector<float> next(now.size());
  const auto row = [columns](std::vector<float>& values, std::uint64_t number) {
    return values.begin() + static_cast<std::ptrdiff_t>(number * columns);
  };
  jacobi::begin_rows(now.data(), grid.rows - 1, grid.rows + 2, grid.rows, columns);
  for (int iteration = 0; iteration < iterations; ++iteration) {
    result.residuals.push_back(
        jacobi::sweep(now.data(), next.data() + columns, grid.rows, columns));
    std::copy(row(next, grid.rows), row(next, grid.rows + 1), row(next, 0));
    std::copy(row(next, 1), row(next, 2), row(next, grid.rows + 1));
    std::swap(now, next);
  }
  result.digest = jacobi::digest_rows(now.data() + columns, 0, grid.rows, columns);
  return result;
}

}  // namespace uniconn_example
