// In the place of an MPI with CUDA, on top of Open MPI, which has none: its five collectives take
// GPU memory, by host memory that is theirs, and it says so. Counts the calls with GPU memory, so
// that tests know that the program's own addresses have come.
#include <cuda.h>
#include <dlfcn.h>
#include <mpi.h>

#include <unistd.h>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

template <typename Function>
Function* driver(const char* name) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  return reinterpret_cast<Function*>(dlsym(library, name));
}
template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}
#define NEXT(name) next<decltype(name)>(#name)
#define DRIVER(name, exported) driver<decltype(name)>(exported)

int calls = 0;
/// Says it as the process ends.
struct AtEnd {
  ~AtEnd() { std::fprintf(stderr, "GPU memory came to MPI %d times in %d\n", calls, getpid()); }
} const at_end;

CUdeviceptr as_device(const void* address) { return reinterpret_cast<CUdeviceptr>(address); }

bool is_device(const void* address) {
  unsigned type = 0;
  return address != MPI_IN_PLACE && address != nullptr &&
         DRIVER(cuPointerGetAttribute, "cuPointerGetAttribute")(
             &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, as_device(address)) == CUDA_SUCCESS &&
         type == CU_MEMORYTYPE_DEVICE;
}

/// Host memory with a buffer's contents; the buffer itself, where that is host memory.
class Staged {
 public:
  Staged(const void* buffer, int count, MPI_Datatype type, int parts) : buffer_(buffer) {
    MPI_Aint low = 0;
    MPI_Aint extent = 0;
    PMPI_Type_get_extent(type, &low, &extent);
    if (!is_device(buffer)) return;
    host_.resize(static_cast<std::size_t>(extent) * static_cast<std::size_t>(count) *
                 static_cast<std::size_t>(parts));
    if (!host_.empty())
      DRIVER(cuMemcpyDtoH_v2, "cuMemcpyDtoH_v2")(host_.data(), as_device(buffer), host_.size());
  }
  [[nodiscard]] bool is_device_memory() const { return !host_.empty(); }
  [[nodiscard]] void* get() { return host_.empty() ? const_cast<void*>(buffer_) : host_.data(); }
  int store(int result) {
    if (!host_.empty()) {
      DRIVER(cuMemcpyHtoD_v2, "cuMemcpyHtoD_v2")(as_device(buffer_), host_.data(), host_.size());
      DRIVER(cuStreamSynchronize, "cuStreamSynchronize")(nullptr);
    }
    return result;
  }

 private:
  const void* buffer_;
  std::vector<char> host_;
};

int size_of(MPI_Comm comm) {
  int size = 0;
  PMPI_Comm_size(comm, &size);
  return size;
}

void count(const Staged& a, const Staged& b) {
  if (a.is_device_memory() || b.is_device_memory()) ++calls;
}

}  // namespace

EXPORTED int MPIX_Query_cuda_support() { return 1; }

EXPORTED int PMPI_Allreduce(const void* send, void* recv, int number, MPI_Datatype type, MPI_Op op,
                            MPI_Comm comm) {
  Staged from(send, number, type, 1);
  Staged to(recv, number, type, 1);
  count(from, to);
  return to.store(NEXT(PMPI_Allreduce)(from.get(), to.get(), number, type, op, comm));
}

EXPORTED int PMPI_Reduce_scatter_block(const void* send, void* recv, int number, MPI_Datatype type,
                                       MPI_Op op, MPI_Comm comm) {
  const int all = size_of(comm);
  Staged from(send, number, type, all);
  Staged to(recv, number, type, send == MPI_IN_PLACE ? all : 1);
  count(from, to);
  return to.store(NEXT(PMPI_Reduce_scatter_block)(from.get(), to.get(), number, type, op, comm));
}

EXPORTED int PMPI_Allgather(const void* send, int send_number, MPI_Datatype send_type, void* recv,
                            int number, MPI_Datatype type, MPI_Comm comm) {
  Staged from(send, send_number, send_type, 1);
  Staged to(recv, number, type, size_of(comm));
  count(from, to);
  return to.store(
      NEXT(PMPI_Allgather)(from.get(), send_number, send_type, to.get(), number, type, comm));
}

EXPORTED int PMPI_Alltoall(const void* send, int send_number, MPI_Datatype send_type, void* recv,
                           int number, MPI_Datatype type, MPI_Comm comm) {
  const int all = size_of(comm);
  Staged from(send, send_number, send_type, all);
  Staged to(recv, number, type, all);
  count(from, to);
  return to.store(
      NEXT(PMPI_Alltoall)(from.get(), send_number, send_type, to.get(), number, type, comm));
}

EXPORTED int PMPI_Bcast(void* buffer, int number, MPI_Datatype type, int root, MPI_Comm comm) {
  Staged both(buffer, number, type, 1);
  count(both, both);
  return both.store(NEXT(PMPI_Bcast)(both.get(), number, type, root, comm));
}
