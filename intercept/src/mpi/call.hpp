// One call of a program for a collective of MPI, whatever function it came by.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gate/collective.hpp"
#include "mpi/library.hpp"

namespace polypath::preload::mpi {

using preload::combines;
using preload::kOperationCount;
using preload::Operation;

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
