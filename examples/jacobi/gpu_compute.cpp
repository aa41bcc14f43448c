#include <algorithm>
#include <bit>
#include <span>

#include "compute.hpp"
#include "kernel_image.hpp"
#include "support/cuda.hpp"

namespace jacobi {
namespace {

using mpi_bench::Cuda;
using mpi_bench::Memory;
using mpi_bench::MemoryKind;

constexpr unsigned int kThreads = 256;
constexpr std::uint64_t kMaxBlocks = 4096;

/// Kernels in the legacy default stream: a wait for that stream waits for them.
class GpuCompute final : public Compute {
 public:
  /// `module`: jacobi_image().
  explicit GpuCompute(CUmodule module) {
    find(module, "jacobi_begin", begin_);
    find(module, "jacobi_step", step_);
    find(module, "jacobi_digest", digest_);
  }

  [[nodiscard]] const char* name() const noexcept override { return "gpu"; }

  void begin(Field& field, std::uint64_t rows) override {
    const std::uint64_t last = field.rows() + 1;
    rows_from(field, 0, (field.first() + rows - 1) % rows, 1);
    rows_from(field, 1, field.first(), field.rows());
    rows_from(field, last, (field.first() + field.rows()) % rows, 1);
    wait();
  }

  float step(Field& field) override {
    std::uint32_t bits = 0;
    result_.write(0, std::as_bytes(std::span(&bits, 1)));
    const void* from = field.now().data();
    void* to = field.next().data();
    std::uint64_t rows = field.rows();
    std::uint64_t columns = field.columns();
    void* result = result_.data();
    void* arguments[] = {&from, &to, &rows, &columns, &result};
    launch(step_, columns, arguments);
    wait();
    result_.read(0, std::as_writable_bytes(std::span(&bits, 1)));
    return std::bit_cast<float>(bits);
  }

  std::uint64_t digest(Field& field) override {
    std::uint64_t sum = 0;
    result_.write(0, std::as_bytes(std::span(&sum, 1)));
    const void* values = field.now().data() + field.bytes(1);
    std::uint64_t first = field.first();
    std::uint64_t rows = field.rows();
    std::uint64_t columns = field.columns();
    void* result = result_.data();
    void* arguments[] = {&values, &first, &rows, &columns, &result};
    launch(digest_, columns, arguments);
    wait();
    result_.read(0, std::as_writable_bytes(std::span(&sum, 1)));
    return sum;
  }

 private:
  void find(CUmodule module, const char* name, CUfunction& function) const {
    cuda_.check(cuda_.module_get_function(&function, module, name), "cuModuleGetFunction");
  }

  /// Initial values for `count` rows here, from row `here` on; the first is row `in_grid` of the
  /// grid.
  void rows_from(Field& field, std::uint64_t here, std::uint64_t in_grid, std::uint64_t count) {
    void* values = field.now().data() + field.bytes(here);
    std::uint64_t columns = field.columns();
    void* arguments[] = {&values, &in_grid, &count, &columns};
    launch(begin_, columns, arguments);
  }

  void launch(CUfunction kernel, std::uint64_t columns, void** arguments) const {
    const auto blocks =
        static_cast<unsigned int>(std::min((columns + kThreads - 1) / kThreads, kMaxBlocks));
    cuda_.check(
        cuda_.launch_kernel(kernel, blocks, 1, 1, kThreads, 1, 1, 0, nullptr, arguments, nullptr),
        "cuLaunchKernel");
  }

  void wait() const { cuda_.check(cuda_.stream_synchronize(nullptr), "cuStreamSynchronize"); }

  const Cuda& cuda_ = Cuda::get();
  CUfunction begin_ = nullptr;
  CUfunction step_ = nullptr;
  CUfunction digest_ = nullptr;
  Memory result_{MemoryKind::gpu, sizeof(std::uint64_t)};
};

}  // namespace

std::unique_ptr<Compute> gpu_compute() {
  const Cuda& cuda = Cuda::get();
  if (jacobi_image().empty() || !cuda.runs_kernels()) return nullptr;
  CUmodule module = nullptr;  // it stays loaded until the process ends
  cuda.check(cuda.module_load_data(&module, jacobi_image().data()), "cuModuleLoadData");
  // The simulated driver takes any module, and runs polypath's own kernels only.
  CUfunction known = nullptr;
  if (cuda.module_get_function(&known, module, "jacobi_step") == CUDA_ERROR_NOT_FOUND)
    return nullptr;
  return std::make_unique<GpuCompute>(module);
}

}  // namespace jacobi
