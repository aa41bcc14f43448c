// The processes of one MPI program, and how it ends.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <string>

namespace mpi_bench {

/// MPI, from its initialisation to its end. All functions but rank() and the like are collective.
class World {
 public:
  World(int& argc, char**& argv);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  /// The number of this rank among those of its node.
  [[nodiscard]] int local_rank() const noexcept { return local_rank_; }
  [[nodiscard]] bool root() const noexcept { return rank_ == 0; }

  void barrier() const;
  [[nodiscard]] double largest(double value) const;
  [[nodiscard]] double mean(double value) const;
  [[nodiscard]] std::uint64_t sum(std::uint64_t value) const;

 private:
  int rank_ = 0;
  int size_ = 1;
  int local_rank_ = 0;
};

/// "Open MPI v5.0.11": the first part of what the MPI library says of itself.
std::string library_version();

/// Runs `body` with MPI and returns the exit code of main(): what `body` returned; 2 after a
/// UsageError, which rank 0 prints. Any other exception is printed by its rank and ends the whole
/// program with 1.
int with_world(int argc, char** argv, int (*body)(const World&, int argc, char** argv));

}  // namespace mpi_bench
