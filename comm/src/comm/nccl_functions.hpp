// NCCL, found at run time: its library is opened by name. Nothing of polypath needs it.
#pragma once

#include <cuda.h>

#include <array>
#include <cstddef>
#include <memory>
#include <string>

namespace polypath {

/// The name of a new NCCL communicator: made by one rank, and sent to all.
using NcclId = std::array<std::byte, 128>;

/// NCCL's ABI, as its documentation gives it: handles are pointers, enumerations are ints, the id
/// is a struct of 128 bytes that is passed by value.
struct NcclFunctions {
  struct UniqueId {
    NcclId bytes;
  };

  int (*get_version)(int*) = nullptr;
  int (*get_unique_id)(UniqueId*) = nullptr;
  int (*comm_init_rank)(void**, int, UniqueId, int) = nullptr;
  int (*comm_destroy)(void*) = nullptr;
  int (*comm_abort)(void*) = nullptr;
  const char* (*get_error_string)(int) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*allreduce)(const void*, void*, std::size_t, int, int, void*, CUstream) = nullptr;
  int (*reduce_scatter)(const void*, void*, std::size_t, int, int, void*, CUstream) = nullptr;
  int (*reduce)(const void*, void*, std::size_t, int, int, int, void*, CUstream) = nullptr;
  int (*all_gather)(const void*, void*, std::size_t, int, void*, CUstream) = nullptr;
  int (*broadcast)(const void*, void*, std::size_t, int, int, void*, CUstream) = nullptr;
  int (*send)(const void*, std::size_t, int, int, void*, CUstream) = nullptr;
  int (*recv)(void*, std::size_t, int, int, void*, CUstream) = nullptr;
};

/// Opens `library`, libnccl.so.2 when it is empty. Null, with the reason in `*why`, when there is
/// none or it lacks a function. It stays loaded for the life of the process.
std::shared_ptr<const NcclFunctions> load_nccl(const std::string& library, std::string* why);

}  // namespace polypath
