// The ranks of one MPI communicator, as an attribute of it: whether they have agreed to use
// polypath, and the communicator of polypath that they then share.
//
// Which way a call goes has to be the same on all ranks, and most of what decides is known to one
// rank alone: MPI lets one rank pass host memory and another one device memory, one a derived
// datatype and another a plain one. So ranks ask each other, by a small MPI reduction before
// the call:
//
//   all can, and their arguments agree    polypath carries the call
//   otherwise                             every rank calls MPI, which allows any mixture; where the
//                                         library takes no device memory, the ranks that have some
//                                         pass host memory in its place (staged.hpp)
//
// Whether a call is asked about is a function of what MPI requires to be alike on all ranks (the
// communicator, the operation, the number of bytes, what is reduced and how) and of the answers
// before it, which all ranks have: calls of a kind that was refused eight times in a row are
// not asked about for the next 1, 3, 7, ... 63 calls of that kind, so that programs without device
// memory pay little. Where no rank had device memory in the first calls that were asked about, or a
// node has more ranks than communicators of polypath serve, no rank asks again.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

#include "cuda/engine.hpp"
#include "mpi/library.hpp"
#include "mpi/mpi_statistics.hpp"

namespace polypath::preload::mpi {

// ---- messages between nodes (internode_messages.cpp) --------------------------------------------
//
// Messages of MPI between the nodes of a communicator, for polypath's collectives there. Only the
// thread that is in a call of the program for a collective sends and receives, so that any level
// of threads of the MPI library is enough.

/// The communicator whose messages they are, and polypath's own copy of it once there are some: no
/// receive of the program may match them.
struct InternodeMessages {
  Handle handle = 0;
  Handle own = 0;
  bool has_own = false;
};

/// The MPI calls that end the network: for a thread of the program, where another thread destroys
/// polypath's communicator. Nothing may be under way.
void end_network(InternodeMessages& between) noexcept;

/// `between` must outlive the communicator of polypath.
polypath_network network_of(InternodeMessages& between) noexcept;

// ---- finished calls (progress.cpp) --------------------------------------------------------------
//
// How many calls each rank of a communicator has finished, in memory that the ranks of a node
// share: a rank whose GPU is reset has to know that the others' kernels, which finish without it,
// have.

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

// ---- the state of a communicator ----------------------------------------------------------------

/// How often calls of one kind are asked about: of one operation, and within a factor of two of
/// their bytes.
struct Backoff {
  std::uint8_t refusals = 0;  ///< in a row, as far as that matters
  std::uint8_t unasked = 0;   ///< calls to come
};

struct CommState {
  Handle handle;
  int rank = 0;
  int size = 0;
  int remote_size = 0;  ///< ranks of the other group, of an intercommunicator; 0: it is none
  /// Not none: no call of this communicator is carried any more; found by all ranks alike.
  Reason refused = Reason::none;
  Backoff backoffs[kOperationCount][64]{};
  bool knows_nodes = false;    ///< whether the ranks of each node were counted
  bool has_seen_gpus = false;  ///< some rank has had device memory in a call
  int without_gpus = 0;        ///< agreements before that
  /// The setting mpi_collectives of this process: the others are told when they first ask.
  bool is_off = false;

  // The communicator of polypath; null `comm`: there is none (yet).
  polypath_comm* comm = nullptr;
  bool is_lost = false;  ///< it was there, and went with its GPU
  int gpu = -1;
  CUstream stream = nullptr;
  /// For data that are in place where polypath's kernels cannot have them so. Grows.
  CUdeviceptr spare = 0;
  std::size_t spare_bytes = 0;
  Progress* progress = nullptr;
  int local_rank = 0;  ///< among those of this node
  int local_size = 0;
  ProgressPlace* places = nullptr;  ///< room for that of each rank
  InternodeMessages between = {};
  /// The same on all ranks. All are destroyed in the order of their numbers, so that no two ranks
  /// wait for each other.
  std::int64_t number = 0;
  CommState* next = nullptr;
};

/// The state of a communicator: found, or made. Null: MPI or memory failed.
CommState* ranks_of(Handle communicator) noexcept;

/// Whether the ranks ask each other about this call.
bool is_asked(CommState& ranks, Operation operation, std::uint64_t bytes) noexcept;
void note_answer(CommState& ranks, Operation operation, std::uint64_t bytes, bool is_yes) noexcept;

/// The answer of one rank, and of all: the least. Answers below `no` are final.
enum class Vote : std::int64_t { off = -2, never = -1, no = 0, yes = 1 };
/// What a rank has to do with GPUs; the most of all ranks.
enum class Seen : std::int64_t { nothing, driver, device_memory };
struct Agreement {
  bool failed = false;  ///< MPI's reduction did
  Seen seen = Seen::nothing;
  Vote answer = Vote::no;
  bool is_same = false;  ///< what all gave as `arguments`
};
/// Collective over the ranks. `arguments` is what must be the same on all.
Agreement agree(const CommState& ranks, Vote vote, std::int64_t arguments, Seen seen) noexcept;
/// Notes an agreement: sets `refused` where no rank has had device memory for long.
void note_seen(CommState& ranks, Seen seen) noexcept;
/// Collective, once a communicator: sets `refused` where a node has more ranks than polypath's
/// communicators may have. False: MPI failed.
bool count_ranks_of_nodes(CommState& ranks) noexcept;

/// Collective: makes polypath's communicator, for `ranks.gpu`. False on all ranks alike, with
/// `refused` set.
bool make_communicator(CommState& ranks, const Engine& engine) noexcept;

/// Before the engine goes, because `gpu` is reset: its communicators are abandoned, without waiting
/// for other ranks, which are told at the next call.
void abandon_communicators(CUdevice gpu) noexcept;

/// The GPU that this rank's buffers are on, as long as there is no communicator.
void take_gpu(CommState& ranks, int gpu) noexcept;
/// Room for `bytes` on the GPU of the ranks; false when there is none.
bool reserve_spare(CommState& ranks, std::size_t bytes) noexcept;
/// Gives back what is too much to keep.
void trim_spare(CommState& ranks) noexcept;

}  // namespace polypath::preload::mpi
