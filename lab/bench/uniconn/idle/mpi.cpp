// The calls of MPI that messages take, in the program, in front of the library's: they do nothing,
// and count.
#include <mpi.h>

unsigned long idle_mpi_calls = 0;

namespace {
int counted() {
  ++idle_mpi_calls;
  return MPI_SUCCESS;
}
}  // namespace

extern "C" {
int MPI_Isend(const void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request* request) {
  *request = MPI_REQUEST_NULL;
  return counted();
}
int MPI_Irecv(void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request* request) {
  *request = MPI_REQUEST_NULL;
  return counted();
}
int MPI_Waitall(int, MPI_Request*, MPI_Status*) { return counted(); }
}
