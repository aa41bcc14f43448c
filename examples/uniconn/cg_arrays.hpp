// What kernels of conjugate gradients have of one rank's rows, on its GPU.
#pragma once

#include <algorithm>

#include "cg_matrix.hpp"
#include "gpu.hpp"

namespace uniconn_example {

class CgArrays {
 public:
  CgArrays(const Gpu& gpu, const Rows& part) : rows(part.count()), gpu_(gpu), first_(part.first) {
    offsets = copied(part.offsets);
    columns = copied(part.columns);
    values = copied(part.values);
    for (double** const each : {&product, &solution, &residual}) *each = room<double>(rows);
  }
  ~CgArrays() {
    for (const auto piece : pieces_) gpu_.cuda.free(piece);
  }
  CgArrays(const CgArrays&) = delete;
  CgArrays& operator=(const CgArrays&) = delete;

  /// The solution is 0, the residual the right side, which is returned.
  std::vector<double> begin() {
    gpu_.zero(solution, rows * sizeof(double));
    std::vector<double> right = right_side(first_, rows);
    gpu_.write(residual, right);
    return right;
  }
  /// The solution, to `to` on the GPU.
  void copy_solution(double* to) const {
    uc::detail::copy_own(gpu_.cuda, to, solution, rows * sizeof(double), gpu_.stream);
  }

  /// Not initialised; as long as this.
  template <typename T>
  T* room(std::size_t count) {
    uc::detail::DevicePointer memory = 0;
    gpu_.cuda.check(gpu_.cuda.alloc(&memory, std::max<std::size_t>(count * sizeof(T), 8)),
                    "cuMemAlloc");
    pieces_.push_back(memory);
    return reinterpret_cast<T*>(memory);
  }

  std::uint64_t rows;
  std::uint64_t* offsets;
  std::int32_t* columns;
  double* values;
  double* product;
  double* solution;
  double* residual;

 private:
  template <typename T>
  T* copied(const std::vector<T>& all) {
    T* const copy = room<T>(all.size());
    gpu_.write(copy, all);
    return copy;
  }

  const Gpu& gpu_;
  std::uint64_t first_;
  std::vector<uc::detail::DevicePointer> pieces_;
};

}  // namespace uniconn_example
