// Conjugate gradients over rows dealt out to the ranks: one source for all backends. An iteration
// is an AllGatherv of the direction, a product with the matrix, and two AllReduce of one double.
//
// The residuals are the same to the last bit on all backends and any number of ranks, on GPUs and
// on the host: each rank's part of a sum is rounded so that sums are exact in any order
// (cg_arithmetic.h).
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "cg_arithmetic.h"
#include "cg_arrays.hpp"
#include "cg_image.hpp"
#include "cg_kernel.h"
#include "cg_steps.hpp"
#include "kernels_that_send.hpp"
#include "polypath/uniconn.hpp"

namespace uniconn_example {

struct CgResult {
  std::vector<double>
      residuals;             ///< the residual's norm before the first iteration, and after each
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

/// One rank's part. Made, used and destroyed by all ranks together. The kernel of the device launch
/// modes communicates over polypath (cg.cuh).
template <uc::BackendLibrary B, uc::LaunchMode M = uc::LaunchMode::PureHost>
class ConjugateGradients {
 public:
  /// `iterations`: that will be run at most. `steps` are of `rows`, which are those of RowParts.
  ConjugateGradients(const Gpu& gpu, CgSteps& steps, uc::Communicator<B>& comm, const Brick& brick,
                     const Rows& rows, int iterations)
      : gpu_(gpu),
        steps_(steps),
        comm_(comm),
        brick_(brick),
        parts_(brick.rows(), comm.GlobalSize()),
        most_(static_cast<std::size_t>(iterations)),
        multiply_(gpu.stream),
        update_(gpu.stream),
        turn_(gpu.stream),
        host_(gpu.stream) {
    vector_ = uc::Memory<B>::template Alloc<double>(brick.rows());
    own_ = vector_ + parts_.first(rank());
    squared_ = uc::Memory<B>::template Alloc<double>(most_ + 1);
    product_ = uc::Memory<B>::template Alloc<double>(most_ + 1);
    words_ = uc::Memory<B>::template Alloc<std::uint64_t>(static_cast<std::size_t>(ranks()));
    gpu_.zero(words_, static_cast<std::size_t>(ranks()) * sizeof(std::uint64_t));
    bind(rows);
    // No rank posts before all words are 0.
    comm_.Barrier(gpu_.stream);
    begin();
  }
  ~ConjugateGradients() {
    for (double* const memory : {vector_, squared_, product_}) uc::Memory<B>::Free(memory);
    uc::Memory<B>::Free(words_);
  }
  ConjugateGradients(const ConjugateGradients&) = delete;
  ConjugateGradients& operator=(const ConjugateGradients&) = delete;

  /// Forgets what was done.
  void begin() {
    done_ = 0;
    gpu_.zero(squared_, (most_ + 1) * sizeof(double));
    gpu_.zero(product_, (most_ + 1) * sizeof(double));
    steps_.begin(own_, squared_);
    if constexpr (kKernelSends) arrays_->begin();
    host_.template AllReduce<uc::ReductionOperator::SUM>(squared_, 1, &comm_);
    host_.AllGatherv(vector_, parts_.counts(), parts_.firsts(), &comm_);
  }

  /// So many more. Each leaves the direction of all ranks with all.
  void iterate(int iterations = 1) {
    for (const std::size_t end = done_ + static_cast<std::size_t>(iterations); done_ < end;
         ++done_) {
      sums_ = {squared_ + done_, product_ + done_, squared_ + done_ + 1};
      if constexpr (kKernelSends) place_sums();
      multiply_.LaunchKernel();
      sum_up(multiply_, sums_.product);
      update_.LaunchKernel();
      sum_up(update_, sums_.next_squared);
      turn_.LaunchKernel();
      gather();
    }
  }

  CgResult solve(int iterations) {
    const auto meet = [this] {
      comm_.Barrier(gpu_.stream);
      gpu_.synchronize();
    };
    gpu_.issue(rank(), iterations, meet, [this] { iterate(); });
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
  /// The residual's norm.
  [[nodiscard]] double residual() const {
    return std::sqrt(gpu_.read<double>(squared_ + done_, 1).front());
  }

 private:
  static constexpr bool kKernelSends = M != uc::LaunchMode::PureHost;

  [[nodiscard]] int rank() const { return comm_.GlobalRank(); }
  [[nodiscard]] int ranks() const { return comm_.GlobalSize(); }

  /// The kernels of all launch modes: the Coordinators take those of their own.
  void bind(const Rows& rows) {
    multiply_.template BindKernel<uc::LaunchMode::PureHost>(
        [this](uc::Stream) { steps_.multiply(vector_, own_, sums_); });
    update_.template BindKernel<uc::LaunchMode::PureHost>(
        [this](uc::Stream) { steps_.update(own_, sums_); });
    turn_.template BindKernel<uc::LaunchMode::PureHost>(
        [this](uc::Stream) { steps_.turn(own_, sums_); });
    if constexpr (kKernelSends) {
      prepare_launches(rows);
      bind_kernel(multiply_, CgStep::multiply);
      bind_kernel(update_, CgStep::update);
      bind_kernel(turn_, CgStep::turn);
    }
  }

  /// The parts of the direction to all. Of PartialDevice kernels have sent them.
  void gather() {
    if constexpr (M != uc::LaunchMode::PartialDevice)
      return turn_.AllGatherv(vector_, parts_.counts(), parts_.firsts(), &comm_);
    const std::size_t count = parts_.count(rank());
    ++sent_;
    turn_.CommStart();
    for (int step = 1; step < ranks(); ++step)
      turn_.Post(own_, own_, count, words_ + rank(), sent_, (rank() + step) % ranks(), &comm_);
    for (int step = 1; step < ranks(); ++step) {
      const int from = (rank() + ranks() - step) % ranks();
      turn_.Acknowledge(vector_ + parts_.first(from), parts_.count(from), words_ + from, sent_,
                        from, &comm_);
    }
    turn_.CommEnd();
  }
  void sum_up(uc::Coordinator<B, M>& behind, double* word) {
    behind.template AllReduce<uc::ReductionOperator::SUM>(word, 1, &comm_);
  }
  template <uc::ReductionOperator Operator>
  double over_all(double own) {
    double* const word = product_ + most_;
    gpu_.write(word, &own, sizeof own);
    host_.template AllReduce<Operator>(word, 1, &comm_);
    host_.WaitComm();
    return gpu_.read<double>(word, 1).front();
  }

  /// Throws when a sum came so far beyond what was foreseen that its order may matter.
  void require_exact(const std::vector<double>& squares) const {
    const auto products = gpu_.read<double>(product_, done_);
    constexpr double kMaxProduct = 1 << (cg::kRoom - 1);
    for (std::size_t i = 0; i < done_; ++i)
      if (!(products[i] <= kMaxProduct * brick_.norm() * squares[i]) ||
          !(squares[i + 1] <= kMaxProduct * squares[i]))
        throw std::runtime_error("iteration " + std::to_string(i) +
                                 ": a sum is larger than its rounding allows");
  }

  /// By a product more, in every launch mode the host's.
  double true_residual() {
    if constexpr (kKernelSends)
      arrays_->copy_solution(own_);
    else
      steps_.solution(own_);
    host_.AllGatherv(vector_, parts_.counts(), parts_.firsts(), &comm_);
    gpu_.zero(product_, sizeof(double));  // what it adds to is of no use
    steps_.multiply(vector_, own_, {squared_, product_, squared_});
    host_.WaitComm();
    const auto right = right_side(parts_.first(rank()), parts_.count(rank()));
    const auto product = steps_.product();
    double sum = 0;
    for (std::size_t row = 0; row < right.size(); ++row)
      sum += (right[row] - product[row]) * (right[row] - product[row]);
    return std::sqrt(over_all<uc::ReductionOperator::SUM>(sum));
  }

  // ---- Kernels that send ------------------------------------------------------------------------

  void prepare_launches(const Rows& rows) {
    arrays_ = std::make_unique<CgArrays>(gpu_, rows);
    const std::uint64_t blocks = (arrays_->rows + cg::kBlockRows - 1) / cg::kBlockRows;
    kernel_ = kernel_that_sends(gpu_, cg_kernel_image(), "uniconn_cg");
    blocks_ = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(
        arrays_->rows / kCgFewestRows, 1, gpu_.at_once(kernel_, cg::kThreads, kCgShared)));
    CgLaunch launch{};
    launch.waits = M == uc::LaunchMode::PureDevice ? 1 : 0;
    launch.rows = arrays_->rows;
    launch.offsets = arrays_->offsets;
    launch.columns = arrays_->columns;
    launch.values = arrays_->values;
    launch.vector = vector_;
    launch.own = own_;
    launch.product = arrays_->product;
    launch.solution = arrays_->solution;
    launch.residual = arrays_->residual;
    launch.norm = brick_.norm();
    launch.parts = arrays_->template room<double>(blocks);
    launch.multiplied = arrays_->template room<std::uint32_t>(blocks + 1);
    launch.ended = launch.multiplied + blocks;
    launch.comm = comm_of_kernels(comm_);
    gpu_.zero(launch.multiplied, (blocks + 1) * sizeof *launch.multiplied);
    launches_.fill(launch);
  }
  void bind_kernel(uc::Coordinator<B, M>& step, CgStep number) {
    const auto at = static_cast<std::size_t>(number);
    launches_[at].step = number;
    args_[at] = &launches_[at];
    const Extent blocks{blocks_};
    const Extent threads{cg::kThreads};
    step.template BindKernel<uc::LaunchMode::PartialDevice>(kernel_, blocks, threads, kCgShared,
                                                            &args_[at]);
    step.template BindKernel<uc::LaunchMode::PureDevice>(kernel_, blocks, threads, kCgShared,
                                                         &args_[at]);
  }
  void place_sums() {
    for (CgLaunch& each : launches_) {
      each.squared = sums_.squared;
      each.along = sums_.product;
      each.next_squared = sums_.next_squared;
    }
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
  uc::Coordinator<B> host_;  ///< of what is before and after the iterations
  CgSums sums_;
  std::size_t done_ = 0;
  double* vector_ = nullptr;        ///< the direction, of all ranks
  double* own_ = nullptr;           ///< this rank's part of it
  double* squared_ = nullptr;       ///< of the residual, by iteration
  double* product_ = nullptr;       ///< direction times product, by iteration; one word more
  std::uint64_t* words_ = nullptr;  ///< of each rank's part of the direction
  std::uint64_t sent_ = 0;
  std::unique_ptr<CgArrays> arrays_;
  CUfunc_st* kernel_ = nullptr;
  std::uint32_t blocks_ = 0;
  std::array<CgLaunch, 3> launches_{};  ///< by CgStep
  std::array<void*, 3> args_{};
};

}  // namespace uniconn_example
