// One collective of MPI with random contents: every rank knows what every rank has, and compares
// every byte of its own memory with that.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "rank_gpu.hpp"

namespace polypath::test {

int rank_in(MPI_Comm comm);
int size_of(MPI_Comm comm);

enum class Collective : std::uint8_t {
  allreduce,
  reduce_scatter,
  all_gather,
  broadcast,
  all_to_all
};
inline constexpr Collective kCollectives[] = {Collective::allreduce, Collective::reduce_scatter,
                                              Collective::all_gather, Collective::broadcast,
                                              Collective::all_to_all};
/// As MPI names it.
const char* name_of(Collective collective);

/// A datatype of MPI and what it is in C++.
struct Type {
  enum class Kind : std::uint8_t { i8, u8, i32, u32, i64, u64, f32, f64, other };
  MPI_Datatype mpi;
  Kind kind;  ///< other: not to be reduced
  std::size_t bytes;
};
/// The types that polypath reduces, then some that it only moves.
const std::vector<Type>& types();
inline constexpr std::size_t kReducedTypes = 8;

struct Row {
  Collective collective = Collective::allreduce;
  Type type = {};
  MPI_Op op = MPI_SUM;
  std::size_t count = 0;
  bool in_place = false;
  int root = 0;
  std::size_t offset = 0;     ///< of the buffers from their allocations, in elements
  bool host_memory = false;   ///< on this rank
  bool derived_type = false;  ///< on this rank: one element that is all of them
  unsigned seed = 0;          ///< of the contents, on all ranks the same
};

/// Makes the call on `comm` and compares. Throws Error with the row in its words.
void run_row(const RankGpu& gpu, MPI_Comm comm, const Row& row);

std::string describe(const Row& row);

/// Throws std::runtime_error(what) unless the condition holds.
void require(bool condition, const char* what);

}  // namespace polypath::test
