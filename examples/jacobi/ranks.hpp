// The ranks of one run: processes of MPI, or threads of one process. They form a ring.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "field.hpp"

namespace mpi_bench {
class World;
}

namespace jacobi {

/// One rank's view. All functions but the first four are collective; they may throw
/// std::runtime_error.
class Ranks {
 public:
  virtual ~Ranks() = default;

  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int size() const noexcept = 0;
  /// The GPU that this rank must use.
  [[nodiscard]] virtual int gpu() const noexcept = 0;
  /// What the ranks are and what carries their messages, for the output.
  [[nodiscard]] virtual std::string name() const = 0;

  virtual void barrier() = 0;
  virtual double largest(double value) = 0;
  virtual double mean(double value) = 0;
  virtual std::uint64_t sum(std::uint64_t value) = 0;
  /// Replaces each element by its largest value over all ranks.
  virtual void largest(std::span<float> values) = 0;

  /// Gives the neighbours of this rank the outer rows of `field.next()`, and its halo theirs: first
  /// all send to the rank before them, then all to the rank after them, so that at any time the
  /// messages go one way around the ring. Returns when this rank's halo is there and its rows have
  /// gone.
  virtual void exchange_halo(Field& field) = 0;
};

/// The processes of `world`, which must outlive it: halos by MPI_Sendrecv.
std::unique_ptr<Ranks> mpi_ranks(const mpi_bench::World& world);

/// Runs `body` in `threads` threads, each with a rank of its own, whose GPU is current; halos,
/// which must be GPU memory, by cuMemcpyAsync from GPU to GPU, ordered by events. Returns the
/// largest of what `body` returned. An exception is printed by its rank and ends the process with
/// 1.
int with_threads(int threads, const std::function<int(Ranks&)>& body);

}  // namespace jacobi
