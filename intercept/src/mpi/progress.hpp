// How many calls each rank of a communicator has finished, in memory that the ranks of a node
// share: a rank whose GPU is reset has to know that the others' kernels, which finish without it,
// have.
#pragma once

#include <cstddef>
#include <cstdint>

namespace polypath::preload::mpi {

inline constexpr std::size_t kMaxRanks = 8;  ///< the kernels serve as many (collective_args.h)

struct Progress;

/// What a rank tells the others, so that they find the memory: of each node's first rank; zeros of
/// others.
struct ProgressPlace {
  std::int64_t process = 0;
  std::int64_t file = -1;
};

/// On a node's first rank: makes the memory. `file` is -1 when that failed.
ProgressPlace offer_progress() noexcept;
/// On all ranks of the node, with what the first offered; null when that failed.
Progress* open_progress(const ProgressPlace& place) noexcept;
/// On the first rank, when all have opened it or failed.
void end_offer(const ProgressPlace& place) noexcept;
/// Null is allowed.
void close_progress(Progress* progress) noexcept;

/// This rank, as the node's are numbered, has finished one more call.
void note_finished(Progress& progress, int rank) noexcept;
/// Waits until all of `size` ranks have finished as many calls as this one, for at most
/// `milliseconds`, and subtracts the time that it took: a rank that is stopped says nothing.
void wait_for_others(const Progress& progress, int rank, int size, int& milliseconds) noexcept;

}  // namespace polypath::preload::mpi
