// What the ranks send each other: lists that every rank makes alike, from a pattern's name and a
// seed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace polypath::test {

/// Which MPI calls carry a phase.
enum class Way {
  blocking,     ///< MPI_Send and MPI_Recv, one message after another in the order of the list
  nonblocking,  ///< all MPI_Irecv, all MPI_Isend, MPI_Waitall
  sendrecv,     ///< MPI_Sendrecv; every rank sends one message and receives one
};

struct Message {
  int from = 0;
  int to = 0;
  std::uint64_t bytes = 0;
  std::uint64_t seed = 0;         ///< of its contents
  std::uint64_t from_offset = 0;  ///< in the memory that the sender sends from
  std::uint64_t to_offset = 0;    ///< in the memory that the receiver receives in
};

/// Messages whose ranges do not overlap, at offsets of every alignment and with gaps between them.
/// The tag of each is its place in the list.
struct Phase {
  Way way = Way::nonblocking;
  std::vector<Message> messages;
};

struct Pattern {
  std::string name;                  ///< one of pattern_names()
  std::vector<std::uint64_t> sizes;  ///< phases for each; of "random": the least and the largest
  int window = 1;                    ///< messages at once, between two ranks
  std::uint64_t messages = 0;        ///< of "random": how many in all
  std::uint64_t seed = 0;
};

/// pairs: every rank to every other, one after another, blocking.
/// window: even ranks to the next, `window` messages at once.
/// both: the same in both directions.
/// ring: every rank to the next by MPI_Sendrecv, then the other way round.
/// all: every rank to every other at once.
/// random: messages of random sizes between random ranks, most of them small.
std::vector<std::string> pattern_names();

/// Throws InvalidArgument for an unknown name.
std::vector<Phase> make_phases(const Pattern& pattern, int ranks);

/// How much memory a rank needs to send from, and to receive in.
struct Extent {
  std::uint64_t from_bytes = 0;
  std::uint64_t to_bytes = 0;
};
Extent extent(const Phase& phase, int rank);

}  // namespace polypath::test
