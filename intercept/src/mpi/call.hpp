// One call of a program for a collective of MPI, by any of its functions: its arguments, how
// many bytes it moves, where, and what ranks compare of that (sums over counts of 64 bits, without
// MPI and the driver).
#pragma once

#include <cstddef>
#include <cstdint>

#include "gate/polypath_api.hpp"
#include "gate/process.hpp"
#include "mpi/library.hpp"

namespace polypath::preload::mpi {

/// Arguments as the program gave them, handles clean.
struct Call {
  Function function;
  Operation operation;
  const void* send;  ///< nothing where the data are in place, and of broadcast
  void* recv;
  std::int64_t send_count;  ///< as recv_count, where the function has one count
  std::int64_t recv_count;
  Handle send_type;
  Handle recv_type;
  Handle op;  ///< of those that combine
  int root;   ///< of broadcast
  Handle comm;
  bool in_place;
};

/// Calls the MPI library's own function, with other buffers.
int call_original(const Call& call, const void* send, void* recv) noexcept;
/// With its own.
int call_original(const Call& call) noexcept;

/// A buffer of this rank's, as far as its call uses it.
struct Buffer {
  const void* address;
  std::size_t bytes;
};

/// The buffers of a call as polypath uses them: without gaps, types of this many bytes. `count`: of
/// them; returns how many.
inline std::size_t buffers_of(const Call& call, std::size_t part_bytes, int size,
                              Buffer (&buffers)[2]) {
  const std::size_t all_bytes = part_bytes * static_cast<std::size_t>(size);
  const bool sends_all = sends_parts(call.operation);
  const bool is_one = call.in_place || call.operation == Operation::broadcast;
  std::size_t count = 0;
  if (!is_one) buffers[count++] = {call.send, sends_all ? all_bytes : part_bytes};
  buffers[count++] = {
      call.recv, receives_parts(call.operation) || (is_one && sends_all) ? all_bytes : part_bytes};
  return count;
}

/// How many bytes of room next to the buffers a call takes: MPI's data in place are where
/// polypath's kernels cannot have them.
inline std::size_t spare_bytes_of(const Call& call, std::size_t part_bytes, int size) noexcept {
  if (!call.in_place) return 0;
  if (call.operation == Operation::reduce_scatter) return part_bytes;
  if (call.operation == Operation::all_to_all) return part_bytes * static_cast<std::size_t>(size);
  return 0;
}

/// How long a rank waits for a living one, for polypath_comm_options: MPI knows no limit, so only
/// where the program's user sets one. `setting`: POLYPATH_COMM_TIMEOUT_MS, or null.
inline std::uint32_t time_limit_of(const char* setting) noexcept {
  return setting == nullptr || *setting == '\0' ? kMaxTimeoutMs : 0;  // 0: libpolypath reads it
}

/// What has to be the same on all ranks, next to the bytes of a part (2^44 at most).
struct Arguments {
  Operation operation;
  int type;  ///< of those that combine; else 0
  int op;    ///< of those that combine; else 0
  int root;  ///< of broadcast; else 0
};
/// As one number, not negative; another one for other arguments.
inline std::int64_t arguments_of(const Arguments& arguments, std::uint64_t part_bytes) noexcept {
  auto words = static_cast<std::uint64_t>(arguments.operation) << 16;
  if (combines(arguments.operation))
    words |=
        static_cast<std::uint64_t>(arguments.type) << 8 | static_cast<std::uint64_t>(arguments.op);
  if (arguments.operation == Operation::broadcast)
    words |= static_cast<std::uint64_t>(arguments.root & 0xffff);
  return static_cast<std::int64_t>((words << 44 ^ part_bytes) & ~(std::uint64_t{1} << 63));
}

}  // namespace polypath::preload::mpi
