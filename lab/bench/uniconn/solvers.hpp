// Jacobi and conjugate gradients over calls of the form of by_uniconn.hpp: as a program over the
// library alone has them. What they compute is that of examples/uniconn.
#pragma once

#include "by_uniconn.hpp"
#include "cg.hpp"
#include "jacobi2d_sweeps.hpp"

namespace uniconn_bench {

using namespace uniconn_example;

template <typename Calls>
class JacobiBy {
 public:
  JacobiBy(const Gpu& gpu, Sweeps& sweeps, Calls& calls, const Grid& grid, bool in_turns, int rank,
           int ranks)
      : gpu_(gpu),
        sweeps_(sweeps),
        calls_(calls),
        grid_(grid),
        in_turns_(in_turns),
        rank_(rank),
        ranks_(ranks) {
    std::uint64_t max_rows = 0;
    for (int each = 0; each < ranks; ++each) max_rows = std::max(max_rows, rows_of(each));
    const std::size_t bytes = (max_rows + 2) * grid.columns * sizeof(float);
    now_ = static_cast<float*>(calls.allocate(bytes));
    next_ = static_cast<float*>(calls.allocate(bytes));
    residual_ = static_cast<float*>(calls.allocate(sizeof(float)));
    sweep_.rows = rows_of(rank);
    sweep_.columns = grid.columns;
    sweep_.residual = reinterpret_cast<std::uint32_t*>(residual_);
    sweeps_.begin(now_, first_of(rank) + grid.rows - 1, sweep_.rows + 2, grid);
    gpu_.zero(residual_, sizeof(float));
    gpu_.synchronize();
  }

  void iterate() {
    const int top = (rank_ + ranks_ - 1) % ranks_;
    const int bottom = (rank_ + 1) % ranks_;
    const std::uint64_t columns = grid_.columns;
    const std::size_t bytes = columns * sizeof(float);
    sweep_.from = now_;
    sweep_.to = next_;
    if (CUfunc_st* const kernel = sweeps_.kernel()) {
      const Extent blocks = Sweeps::grid_of(sweep_);
      gpu_.cuda.check(gpu_.cuda.launch(kernel, blocks.x, blocks.y, 1, Sweeps::kThreads.x, 1, 1, 0,
                                       gpu_.stream, sweep_.args, nullptr),
                      "cuLaunchKernel");
    } else {
      sweeps_.run(sweep_);
    }
    calls_.start();
    calls_.post(next_ + columns, next_ + (rows_of(top) + 1) * columns, bytes, 1, top);
    calls_.acknowledge(next_ + (sweep_.rows + 1) * columns, bytes, 1, bottom);
    if (in_turns_) {
      calls_.end();
      calls_.start();
    }
    calls_.post(next_ + sweep_.rows * columns, next_, bytes, 0, bottom);
    calls_.acknowledge(next_, bytes, 0, top);
    calls_.end();
    std::swap(now_, next_);
  }

  /// Digest of this rank's rows, and whether its halos hold the neighbours' rows of a grid that was
  /// only copied.
  [[nodiscard]] std::uint64_t digest() {
    return sweeps_.digest(now_ + grid_.columns, first_of(rank_), sweep_.rows, grid_);
  }
  [[nodiscard]] std::uint64_t halo_digest() {
    gpu_.synchronize();
    const std::uint64_t first = first_of(rank_);
    return sweeps_.digest(now_, (first + grid_.rows - 1) % grid_.rows, 1, grid_) * 3 +
           sweeps_.digest(now_ + (sweep_.rows + 1) * grid_.columns,
                          (first + sweep_.rows) % grid_.rows, 1, grid_);
  }

 private:
  [[nodiscard]] std::uint64_t first_of(int rank) const {
    return grid_.rows * static_cast<std::uint64_t>(rank) / static_cast<std::uint64_t>(ranks_);
  }
  [[nodiscard]] std::uint64_t rows_of(int rank) const {
    return first_of(rank + 1) - first_of(rank);
  }

  const Gpu& gpu_;
  Sweeps& sweeps_;
  Calls& calls_;
  Grid grid_;
  bool in_turns_;
  int rank_;
  int ranks_;
  Sweep sweep_;
  float* now_;
  float* next_;
  float* residual_;
};

template <typename Calls>
class CgBy {
 public:
  CgBy(const Gpu& gpu, CgSteps& steps, Calls& calls, const Brick& brick, int rank, int ranks)
      : gpu_(gpu), steps_(steps), calls_(calls), parts_(brick.rows(), ranks) {
    vector_ = static_cast<double*>(calls.allocate(brick.rows() * sizeof(double)));
    own_ = vector_ + parts_.first(rank);
    words_ = static_cast<double*>(calls.allocate(3 * sizeof(double)));
    begin();
  }

  void begin() {
    gpu_.zero(words_, 3 * sizeof(double));
    steps_.begin(own_, words_);
    calls_.all_reduce(words_);
  }
  void iterate() {
    const CgSums sums{words_, words_ + 1, words_ + 2};
    gpu_.zero(words_ + 1, 2 * sizeof(double));
    calls_.all_gather(vector_, parts_.counts(), parts_.firsts());
    steps_.multiply(vector_, own_, sums);
    calls_.all_reduce(words_ + 1);
    steps_.update(own_, sums);
    calls_.all_reduce(words_ + 2);
    steps_.turn(own_, sums);
    uc::detail::copy_own(gpu_.cuda, words_, words_ + 2, sizeof(double), gpu_.stream);
  }
  /// The residual's norm.
  [[nodiscard]] double residual() const { return std::sqrt(gpu_.read<double>(words_, 1).front()); }

 private:
  const Gpu& gpu_;
  CgSteps& steps_;
  Calls& calls_;
  RowParts parts_;
  double* vector_;
  double* own_;
  double* words_;  ///< squared residual, direction times product, the next squared residual
};

}  // namespace uniconn_bench
