// Conjugate gradients over rows dealt out to the ranks: one source for all backends. An iteration is
// an AllGatherv of the direction, a product with the matrix, and two AllReduce of one double.
//
// The residuals are the same to the last bit on all backends and any number of ranks, on GPUs and on
// the host: each rank's part of a sum is rounded so that sums are exact in any order
// (cg_arithmetic.h).
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "cg_arithmetic.h"
#include "cg_steps.hpp"
#include "polypath/uniconn.hpp"

namespace uniconn_example {

struct CgResult {
  std::vector<double>
      residuals;             ///< the residual's norm before the first iteration, and behind each
  double true_residual = 0;  ///< the norm of b - A x at the end
  double iteration_us = 0;   ///< of the slowest rank
};

/// Rows in whole blocks, so that sums of blocks are the same for any number of ranks.
class RowParts {
 public:
  RowParts(std::uint64_t rows, int ranks) {
    const std::uint64_t blocks = (rows + cg::kBlockRows - 1) / cg::kBlockRows;
    for (int rank = 0; rank <= ranks; ++rank)
      firsts_.push_back(std::min<std::uint64_t>(blocks * static_cast<std::uint64_t>(rank) /
                                                    static_cast<std::uint64_t>(ranks) *
                                                    cg::kBlockRows,
                                                rows));
    for (std::size_t rank = 0; rank + 1 < firsts_.size(); ++rank)
      counts_.push_back(firsts_[rank + 1] - firsts_[rank]);
  }
  [[nodiscard]] const std::size_t* firsts() const { return firsts_.data(); }
  [[nodiscard]] const std::size_t* counts() const { return counts_.data(); }
  [[nodiscard]] std::size_t first(int rank) const {
    return firsts_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] std::size_t count(int rank) const {
    return counts_[static_cast<std::size_t>(rank)];
  }

 private:
  std::vector<std::size_t> firsts_;
  std::vector<std::size_t> counts_;
};

/// One rank's part. Made, used and destroyed by all ranks together.
template <uc::BackendLibrary B, uc::LaunchMode M = uc::LaunchMode::PureHost>
class ConjugateGradients {
 public:
  /// `iterations`: that will be run at most. `steps` are of rows parts(comm).
  ConjugateGradients(const Gpu& gpu, CgSteps& steps, uc::Communicator<B>& comm, const Brick& brick,
                     int iterations)
      : gpu_(gpu),
        steps_(steps),
        comm_(comm),
        brick_(brick),
        parts_(brick.rows(), comm.GlobalSize()),
        most_(static_cast<std::size_t>(iterations)),
        multiply_(gpu.stream),
        update_(gpu.stream),
        turn_(gpu.stream) {
    vector_ = uc::Memory<B>::template Alloc<double>(brick.rows());
    own_ = vector_ + parts_.first(comm.GlobalRank());
    squared_ = uc::Memory<B>::template Alloc<double>(most_ + 1);
    product_ = uc::Memory<B>::template Alloc<double>(most_ + 1);
    gpu_.zero(squared_, (most_ + 1) * sizeof(double));
    gpu_.zero(product_, (most_ + 1) * sizeof(double));
    bind();
    steps_.begin(own_, squared_);
    sum_up(update_, squared_);
  }
  ~ConjugateGradients() {
    for (double* const memory : {vector_, squared_, product_}) uc::Memory<B>::Free(memory);
  }
  ConjugateGradients(const ConjugateGradients&) = delete;
  ConjugateGradients& operator=(const ConjugateGradients&) = delete;

  /// So many more.
  void iterate(int iterations) {
    for (const std::size_t end = done_ + static_cast<std::size_t>(iterations); done_ < end;
         ++done_) {
      sums_ = {squared_ + done_, product_ + done_, squared_ + done_ + 1};
      gather();
      multiply_.LaunchKernel();
      sum_up(multiply_, product_ + done_);
      update_.LaunchKernel();
      sum_up(update_, squared_ + done_ + 1);
      turn_.LaunchKernel();
    }
  }

  CgResult solve(int iterations) {
    gpu_.issue(comm_.GlobalRank(), iterations, [this] { meet(); }, [this] { iterate(1); });
    multiply_.WaitComm();
    CgResult result;
    const double mine_us = gpu_.elapsed_us() / std::max(1, iterations);
    const auto squares = gpu_.read<double>(squared_, done_ + 1);
    for (const double square : squares) result.residuals.push_back(std::sqrt(square));
    require_exact(squares);
    result.true_residual = true_residual();
    result.iteration_us = over_all<uc::ReductionOperator::MAX>(mine_us);
    return result;
  }

 private:
  /// The kernels of all launch modes: the Coordinators take those of their own.
  void bind() {
    multiply_.template BindKernel<uc::LaunchMode::PureHost>(
        [this](uc::Stream) { steps_.multiply(vector_, own_, sums_); });
    update_.template BindKernel<uc::LaunchMode::PureHost>(
        [this](uc::Stream) { steps_.update(own_, sums_); });
    turn_.template BindKernel<uc::LaunchMode::PureHost>(
        [this](uc::Stream) { steps_.turn(own_, sums_); });
  }

  void meet() {
    comm_.Barrier(gpu_.stream);
    gpu_.synchronize();
  }
  void gather() { multiply_.AllGatherv(vector_, parts_.counts(), parts_.firsts(), &comm_); }
  void sum_up(uc::Coordinator<B, M>& behind, double* word) {
    behind.template AllReduce<uc::ReductionOperator::SUM>(word, 1, &comm_);
  }
  template <uc::ReductionOperator Operator>
  double over_all(double mine) {
    double* const word = product_ + most_;
    gpu_.write(word, &mine, sizeof mine);
    update_.template AllReduce<Operator>(word, 1, &comm_);
    update_.WaitComm();
    return gpu_.read<double>(word, 1).front();
  }

  /// Throws when a sum came so far beyond what was foreseen that its order may matter.
  void require_exact(const std::vector<double>& squares) const {
    const auto products = gpu_.read<double>(product_, done_);
    constexpr double kMost = 1 << (cg::kRoom - 1);
    for (std::size_t i = 0; i < done_; ++i)
      if (!(products[i] <= kMost * brick_.norm() * squares[i]) ||
          !(squares[i + 1] <= kMost * squares[i]))
        throw std::runtime_error("iteration " + std::to_string(i) +
                                 ": a sum is larger than its rounding allows");
  }

  /// By a product more.
  double true_residual() {
    const int rank = comm_.GlobalRank();
    steps_.solution(own_);
    gather();
    gpu_.zero(product_, sizeof(double));  // what it adds to is of no use
    sums_ = {squared_, product_, squared_};
    multiply_.LaunchKernel();
    multiply_.WaitComm();
    const auto right = right_side(parts_.first(rank), parts_.count(rank));
    const auto product = steps_.product();
    double sum = 0;
    for (std::size_t row = 0; row < right.size(); ++row)
      sum += (right[row] - product[row]) * (right[row] - product[row]);
    return std::sqrt(over_all<uc::ReductionOperator::SUM>(sum));
  }

  const Gpu& gpu_;
  CgSteps& steps_;
  uc::Communicator<B>& comm_;
  Brick brick_;
  RowParts parts_;
  std::size_t most_;
  uc::Coordinator<B, M> multiply_;
  uc::Coordinator<B, M> update_;
  uc::Coordinator<B, M> turn_;
  CgSums sums_;
  std::size_t done_ = 0;
  double* vector_ = nullptr;   ///< the direction, of all ranks
  double* own_ = nullptr;      ///< this rank's part of it
  double* squared_ = nullptr;  ///< of the residual, by iteration
  double* product_ = nullptr;  ///< direction times product, by iteration; one word more
};

}  // namespace uniconn_example
