// The MPI library of this process: found at run time, by the functions of its profiling interface
// (PMPI), and used without its header, because headers differ. What families differ in:
//
//                  Open MPI                     MPICH (Intel MPI, MVAPICH,   the standard ABI of
//                                               Cray MPICH)                  MPI 5 (libmpi_abi)
//   handles        pointers                     ints                         pointers
//   predefined     addresses of its symbols     numbers                      numbers
//   MPI_IN_PLACE   1                            -1                           1
//   MPI_ROOT       -4                           -3                           -4
//
// An int and a pointer are passed alike by the calling conventions of x86-64 and aarch64 Linux, in
// one register or in one place on the stack; of an int the upper half is undefined.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gate/polypath_api.hpp"
#include "polypath/comm.h"

namespace polypath::preload::mpi {

using namespace gate;

/// A communicator, datatype or operator.
using Handle = std::uintptr_t;

enum class Function : std::uint8_t {
#define POLYPATH_MPI_FUNCTION(name) name,
#include "mpi/functions.def"
#undef POLYPATH_MPI_FUNCTION
};
inline constexpr const char* kFunctionNames[] = {
#define POLYPATH_MPI_FUNCTION(name) #name,
#include "mpi/functions.def"
#undef POLYPATH_MPI_FUNCTION
};
inline constexpr std::size_t kFunctionCount = sizeof kFunctionNames / sizeof *kFunctionNames;

enum class Family : std::uint8_t { unknown, open_mpi, mpich, standard };

/// A predefined datatype without gaps.
struct Datatype {
  std::size_t bytes;
  /// What polypath reduces it as; kNotReduced.
  int reduced_as;
};
inline constexpr int kNotReduced = -1;

using CopyAttribute = int (*)(Handle, int, void*, void*, void*, int*);
using DeleteAttribute = int (*)(Handle, int, void*, void*);

struct Library {
  Family family = Family::unknown;
  /// Whether it says that it takes pointers to device memory.
  bool takes_device_memory = false;
  /// What this process's calls go to; null where the library has none, or there is none.
  void* originals[kFunctionCount]{};

  // As MPI declares them, but for handles.
  int (*initialized)(int*);
  int (*comm_rank)(Handle, int*);
  int (*comm_size)(Handle, int*);
  int (*comm_test_inter)(Handle, int*);
  int (*comm_remote_size)(Handle, int*);
  int (*comm_create_keyval)(CopyAttribute, DeleteAttribute, int*, void*);
  int (*comm_get_attr)(Handle, int, void*, int*);
  int (*comm_set_attr)(Handle, int, void*);
  int (*comm_call_errhandler)(Handle, int);
  int (*type_size)(Handle, std::int64_t*);  ///< the form with MPI_Count: no type is too large
  int (*type_get_extent)(Handle, std::intptr_t*, std::intptr_t*);
  int (*type_get_true_extent)(Handle, std::intptr_t*, std::intptr_t*);
  int (*type_contiguous)(int, Handle, Handle*);
  int (*type_commit)(Handle*);
  int (*type_free)(Handle*);
  // How a type was made; the forms with MPI_Count are null where the library has none.
  int (*type_get_envelope)(Handle, int*, int*, int*, int*);
  int (*type_get_contents)(Handle, int, int, int, int*, std::intptr_t*, void*);
  int (*type_get_envelope_c)(Handle, std::int64_t*, std::int64_t*, std::int64_t*, std::int64_t*,
                             int*);
  int (*type_get_contents_c)(Handle, std::int64_t, std::int64_t, std::int64_t, std::int64_t, int*,
                             std::intptr_t*, std::int64_t*, void*);
  int (*allreduce)(const void*, void*, int, Handle, Handle, Handle);
  int (*allgather)(const void*, int, Handle, void*, int, Handle, Handle);
  int (*comm_dup)(Handle, Handle*);
  int (*comm_free)(Handle*);
  int (*isend)(const void*, int, Handle, int, int, Handle, Handle*);
  int (*irecv)(void*, int, Handle, int, int, Handle, Handle*);
  int (*test)(Handle*, int*, void*);

  Handle comm_null;
  Handle comm_self;
  Handle datatype_null;
  Handle byte;
  Handle int64;
  Handle min;
  const void* in_place;
  int root;  ///< MPI_ROOT: the sending rank of an intercommunicator
  /// MPI_ERR_OTHER. Of no known library that of Open MPI, which is an error in all.
  int error_other = 16;
};

inline constexpr int kSuccess = 0;  ///< MPI_SUCCESS

/// Found at the first call, which has to come after MPI_Init. Any thread.
const Library& library() noexcept;

/// Whether MPI_Init was called: programs of sessions alone have no MPI_COMM_SELF.
bool is_initialized() noexcept;

/// What a program passed, without what is undefined of it.
Handle clean(Handle handle) noexcept;

/// Null for what is not predefined, or has gaps.
const Datatype* find_datatype(Handle datatype) noexcept;
/// A polypath_reduce_op; -1 for all others.
int find_operator(Handle op) noexcept;

}  // namespace polypath::preload::mpi
