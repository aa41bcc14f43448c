// One call of a program for a collective of MPI, whatever function it came by.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mpi/library.hpp"

namespace polypath::preload::mpi {

enum class Operation : std::uint8_t {
  allreduce,
  reduce_scatter,
  all_gather,
  broadcast,
  all_to_all
};
inline constexpr std::size_t kOperationCount = 5;

constexpr bool combines(Operation operation) noexcept {
  return operation == Operation::allreduce || operation == Operation::reduce_scatter;
}

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

}  // namespace polypath::preload::mpi
