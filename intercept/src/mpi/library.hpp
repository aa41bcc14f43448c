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
};
inline constexpr const char* kFunctionNames[] = {
#define POLYPATH_MPI_FUNCTION(name) #name,
#include "mpi/functions.def"
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

  // What it calls; null where the library has no such function.
#define POLYPATH_MPI_CALL(member, name, arguments) int(*member) arguments = nullptr;
#define POLYPATH_MPI_OPTIONAL_CALL POLYPATH_MPI_CALL
#include "mpi/functions.def"

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
