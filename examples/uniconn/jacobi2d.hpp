// The Jacobi iteration on a two-dimensional grid of floats, rows dealt out to the ranks: one source
// for all backends. Each iteration sweeps the block, then sends its outer rows to the neighbours'
// halos (Listing 4 of the UNICONN paper).
//
// Residuals, and a digest of the grid, are the same to the last bit on any number of ranks, on GPUs
// and on the host: the arithmetic is (examples/jacobi), and the largest of all and a sum of
// integers do not depend on an order.
#pragma once

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "jacobi2d_image.hpp"
#include "jacobi2d_kernel.h"
#include "jacobi2d_sweeps.hpp"
#include "kernels_that_send.hpp"
#include "polypath/uniconn.hpp"

namespace uniconn_example {

/// One rank's block. Made, used and destroyed by all ranks together. The kernel of the device
/// launch modes communicates over polypath: B is that, or has chosen it.
template <uc::BackendLibrary B, uc::LaunchMode M = uc::LaunchMode::PureHost>
class Jacobi2d {
 public:
  /// `iterations`: that will be run at most. `in_turns`: all send to the rank before them, and then
  /// to the rank after them, and not to both at once.
  Jacobi2d(const Gpu& gpu, Sweeps& sweeps, uc::Communicator<B>& comm, const Grid& grid,
           int iterations, bool in_turns = false)
      : gpu_(gpu),
        sweeps_(sweeps),
        comm_(comm),
        grid_(grid),
        most_(iterations),
        in_turns_(in_turns),
        rank_(comm.GlobalRank()),
        size_(comm.GlobalSize()),
        step_(gpu.stream),
        host_(gpu.stream) {
    std::uint64_t max_rows = 0;
    for (int rank = 0; rank < size_; ++rank) max_rows = std::max(max_rows, rows_of(rank));
    // As much on all ranks: they name each other's places by their own.
    for (float*& buffer : {std::ref(now_), std::ref(next_)})
      buffer = uc::Memory<B>::template Alloc<float>((max_rows + 2) * grid.columns);
    words_ = uc::Memory<B>::template Alloc<std::uint64_t>(kWords);
    residuals_ = uc::Memory<B>::template Alloc<float>(static_cast<std::size_t>(iterations));
    sum_ = uc::Memory<B>::template Alloc<std::uint64_t>(1);
    gpu_.zero(words_, kWords * sizeof(std::uint64_t));
    gpu_.zero(residuals_, static_cast<std::size_t>(iterations) * sizeof(float));
    sweep_.rows = rows_of(rank_);
    sweep_.columns = grid.columns;
    sweeps_.begin(now_, first_of(rank_) + grid.rows - 1, sweep_.rows + 2, grid);
    bind();
    // No rank posts before all words are 0.
    comm_.Barrier(gpu_.stream);
  }
  ~Jacobi2d() {
    for (float* const buffer : {now_, next_, residuals_, changes_}) uc::Memory<B>::Free(buffer);
    for (std::uint64_t* const buffer : {words_, sum_}) uc::Memory<B>::Free(buffer);
  }
  Jacobi2d(const Jacobi2d&) = delete;
  Jacobi2d& operator=(const Jacobi2d&) = delete;

  /// So many more.
  void iterate(int iterations = 1) {
    const int top = (rank_ + size_ - 1) % size_;
    const int bottom = (rank_ + 1) % size_;
    const std::uint64_t columns = grid_.columns;
    for (const int end = done_ + iterations; done_ < end; ++done_) {
      sweep_.from = now_;
      sweep_.to = next_;
      sweep_.residual = reinterpret_cast<std::uint32_t*>(residuals_ + done_);
      const auto value = static_cast<std::uint64_t>(done_ + 1);
      if constexpr (kKernelSends) {
        launch_.from = now_;
        launch_.to = next_;
        launch_.value = value;
        launch_.changes = changes_ + changes_of(done_);
      }
      step_.LaunchKernel();
      float* const last_halo = next_ + (sweep_.rows + 1) * columns;
      // What both neighbours post in this order is acknowledged in this order: of two ranks each is
      // the other's top and bottom.
      step_.CommStart();
      step_.Post(next_ + columns, next_ + (rows_of(top) + 1) * columns, columns, words_ + 1, value,
                 top, &comm_);
      step_.Acknowledge(last_halo, columns, words_ + 1, value, bottom, &comm_);
      if (in_turns_) {
        step_.CommEnd();
        step_.CommStart();
      }
      step_.Post(next_ + sweep_.rows * columns, next_, columns, words_, value, bottom, &comm_);
      step_.Acknowledge(next_, columns, words_, value, top, &comm_);
      step_.CommEnd();
      // A neighbour posts to what is next once it has what this rank posted after its last look
      // at it: two buffers in turn are enough.
      std::swap(now_, next_);
    }
  }

  /// Iterates, timed after the first `warmup`, and says what came of it.
  JacobiResult solve(int iterations, int warmup) {
    iterate(warmup);
    const auto meet = [this] {
      comm_.Barrier(gpu_.stream);
      gpu_.synchronize();
    };
    gpu_.issue(rank_, iterations - warmup, meet, [this] { iterate(); });
    step_.WaitComm();
    JacobiResult result;
    result.iteration_us =
        largest(gpu_.elapsed_us()) / std::max(1, iterations - warmup);  // of the slowest rank
    if constexpr (kKernelSends) collect_changes();
    host_.template AllReduce<uc::ReductionOperator::MAX>(residuals_,
                                                         static_cast<std::size_t>(most_), &comm_);
    host_.WaitComm();
    result.residuals = gpu_.read<float>(residuals_, static_cast<std::size_t>(done_));
    const std::uint64_t own_digest = digest();
    gpu_.write(sum_, &own_digest, sizeof own_digest);
    host_.template AllReduce<uc::ReductionOperator::SUM>(sum_, 1, &comm_);
    host_.WaitComm();
    result.digest = gpu_.read<std::uint64_t>(sum_, 1).front();
    return result;
  }

  /// The digest of this rank's rows.
  [[nodiscard]] std::uint64_t digest() {
    return sweeps_.digest(now_ + grid_.columns, first_of(rank_), sweep_.rows, grid_);
  }

  /// The row of the grid that the halo in front of the block holds, and that after it.
  [[nodiscard]] std::vector<float> halo(bool is_last) const {
    return gpu_.read<float>(now_ + (is_last ? (sweep_.rows + 1) * grid_.columns : 0),
                            grid_.columns);
  }

 private:
  static constexpr bool kKernelSends = M != uc::LaunchMode::PureHost;
  static constexpr std::size_t kWords = std::size_t{2} * kJacobiMostAcross;  ///< the host takes two

  [[nodiscard]] std::uint64_t first_of(int rank) const {
    return grid_.rows * static_cast<std::uint64_t>(rank) / static_cast<std::uint64_t>(size_);
  }
  [[nodiscard]] std::uint64_t rows_of(int rank) const {
    return first_of(rank + 1) - first_of(rank);
  }

  /// The kernels of all launch modes: the Coordinator takes that of its own.
  void bind() {
    if (CUfunc_st* const kernel = sweeps_.kernel()) {
      step_.template BindKernel<uc::LaunchMode::PureHost>(kernel, Sweeps::grid_of(sweep_),
                                                          Sweeps::kThreads, 0, sweep_.args);
    } else {
      step_.template BindKernel<uc::LaunchMode::PureHost>(
          [this](uc::Stream) { sweeps_.run(sweep_); });
    }
    if constexpr (kKernelSends) {
      CUfunc_st* const kernel = prepare_launch();
      const Extent blocks{launch_.across * down_};
      step_.template BindKernel<uc::LaunchMode::PartialDevice>(kernel, blocks,
                                                               Extent{kJacobiThreads}, 0, args_);
      step_.template BindKernel<uc::LaunchMode::PureDevice>(kernel, blocks, Extent{kJacobiThreads},
                                                            0, args_);
    }
  }

  // ---- Kernels that send ------------------------------------------------------------------------

  CUfunc_st* prepare_launch() {
    CUfunc_st* const kernel = kernel_that_sends(gpu_, jacobi2d_kernel_image(), "uniconn_jacobi2d");
    launch_.comm = comm_of_kernels(comm_);
    // As many on all ranks, whose GPUs may differ.
    const double own_blocks = gpu_.at_once(kernel, kJacobiThreads, 0);
    const auto most = static_cast<std::uint32_t>(-largest(-own_blocks));
    launch_.across = static_cast<std::uint32_t>(std::min<std::uint64_t>(
        (grid_.columns + kJacobiThreads - 1) / kJacobiThreads, std::min(kJacobiMostAcross, most)));
    // Memory for changes is as large on all ranks, too: of the ranks with the fewest rows. Blocks
    // of fewer rows than threads load together take as long.
    const std::uint64_t fewest = grid_.rows / static_cast<std::uint64_t>(size_);
    down_ = static_cast<std::uint32_t>(
        std::clamp<std::uint64_t>(fewest / kJacobiTogether, 1, most / launch_.across));
    changes_ = uc::Memory<B>::template Alloc<float>(changes_of(most_));
    gpu_.zero(changes_, changes_of(most_) * sizeof(float));
    launch_.rows = sweep_.rows;
    launch_.columns = grid_.columns;
    launch_.top = (rank_ + size_ - 1) % size_;
    launch_.bottom = (rank_ + 1) % size_;
    launch_.rows_of_top = rows_of(launch_.top);
    launch_.waits = M == uc::LaunchMode::PureDevice ? 1 : 0;
    launch_.words = words_;
    return kernel;
  }
  [[nodiscard]] std::size_t changes_of(int iterations) const {
    return std::size_t{launch_.across} * down_ * kJacobiWarps *
           static_cast<std::size_t>(iterations);
  }
  /// The residual of each iteration, of what its warps have written.
  void collect_changes() {
    const auto all = gpu_.read<float>(changes_, changes_of(done_));
    std::vector<float> largest(static_cast<std::size_t>(most_), 0);
    for (std::size_t i = 0; i < all.size(); ++i) {
      float& change = largest[i / changes_of(1)];
      change = std::max(change, all[i]);
    }
    gpu_.write(residuals_, largest);
  }

  double largest(double own) {
    auto* const word = reinterpret_cast<double*>(sum_);
    gpu_.write(word, &own, sizeof own);
    host_.template AllReduce<uc::ReductionOperator::MAX>(word, 1, &comm_);
    host_.WaitComm();
    return gpu_.read<double>(word, 1).front();
  }

  const Gpu& gpu_;
  Sweeps& sweeps_;
  uc::Communicator<B>& comm_;
  Grid grid_;
  int most_;
  bool in_turns_;
  int rank_;
  int size_;
  uc::Coordinator<B, M> step_;
  uc::Coordinator<B> host_;  ///< of what comes after the iterations
  Sweep sweep_;
  int done_ = 0;
  float* now_ = nullptr;
  float* next_ = nullptr;
  std::uint64_t* words_ = nullptr;  ///< of the halo in front of the block, and of that after it
  JacobiLaunch launch_{};
  std::uint32_t down_ = 0;  ///< rows of blocks
  void* args_[1] = {&launch_};
  float* changes_ = nullptr;
  float* residuals_ = nullptr;  ///< by iteration
  std::uint64_t* sum_ = nullptr;
};

}  // namespace uniconn_example
