// Makes the MPI of this program one that takes memory of GPUs in collectives, and says so, with
// POLYPATH_UNICONN_MPI=gpu: its functions stand before MPI's own (PMPI), which get host memory. How
// often they were called with memory of a GPU is printed in the end.
#include <mpi.h>

#include <cstdio>
#include <vector>

#include "polypath/uniconn/environment.hpp"

namespace {

using polypath::uniconn::detail::Cuda;
using polypath::uniconn::detail::device;

int taken = 0;

const Cuda* cuda() {
  // Never ended: the driver may be gone when what is static is.
  static const auto* const engine =
      new std::shared_ptr<polypath_context>(polypath::uniconn::detail::engine());
  static const Cuda cuda(engine->get());
  return &cuda;
}

bool is_on_gpu(const void* address) {
  unsigned type = 0;
  return address != nullptr && address != MPI_IN_PLACE &&
         cuda()->attribute(&type, 2, device(address)) == 0 && type == 2;
}

std::size_t bytes_of(int count, MPI_Datatype type) {
  int size = 0;
  MPI_Type_size(type, &size);
  return static_cast<std::size_t>(count) * static_cast<std::size_t>(size);
}

/// A buffer of a call, in host memory while the call runs.
class Staged {
 public:
  Staged(const void* address, std::size_t bytes, bool is_read)
      : address_(const_cast<void*>(address)), on_gpu_(is_on_gpu(address)) {
    if (!on_gpu_) return;
    ++taken;
    host_.resize(bytes + 1);
    if (is_read) move(host_.data(), address_, bytes);
  }
  [[nodiscard]] void* get() { return on_gpu_ ? host_.data() : address_; }
  void write_back() {
    if (on_gpu_) move(address_, host_.data(), host_.size() - 1);
  }

 private:
  static void move(void* to, const void* from, std::size_t bytes) {
    cuda()->check(cuda()->copy(device(to), device(from), bytes, nullptr), "copy");
    cuda()->check(cuda()->synchronize(nullptr), "copy");
  }
  void* address_;
  bool on_gpu_;
  std::vector<std::byte> host_;
};

int ranks_of(MPI_Comm comm) {
  int size = 0;
  MPI_Comm_size(comm, &size);
  return size;
}

}  // namespace

extern "C" {

int MPI_Allgather(const void* send, int count, MPI_Datatype type, void* recv, int recv_count,
                  MPI_Datatype recv_type, MPI_Comm comm) {
  Staged from(send, bytes_of(count, type), true);
  Staged to(recv, bytes_of(recv_count, recv_type) * static_cast<std::size_t>(ranks_of(comm)), true);
  const int result = PMPI_Allgather(from.get(), count, type, to.get(), recv_count, recv_type, comm);
  to.write_back();
  return result;
}

int MPI_Alltoall(const void* send, int count, MPI_Datatype type, void* recv, int recv_count,
                 MPI_Datatype recv_type, MPI_Comm comm) {
  const auto ranks = static_cast<std::size_t>(ranks_of(comm));
  Staged from(send, bytes_of(count, type) * ranks, true);
  Staged to(recv, bytes_of(recv_count, recv_type) * ranks, true);
  const int result = PMPI_Alltoall(from.get(), count, type, to.get(), recv_count, recv_type, comm);
  to.write_back();
  return result;
}

int MPI_Bcast(void* buffer, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  Staged staged(buffer, bytes_of(count, type), true);
  const int result = PMPI_Bcast(staged.get(), count, type, root, comm);
  staged.write_back();
  return result;
}

int MPI_Allreduce(const void* send, void* recv, int count, MPI_Datatype type, MPI_Op op,
                  MPI_Comm comm) {
  Staged from(send, bytes_of(count, type), true);
  Staged to(recv, bytes_of(count, type), true);
  const int result = PMPI_Allreduce(from.get(), to.get(), count, type, op, comm);
  to.write_back();
  return result;
}

int MPI_Reduce(const void* send, void* recv, int count, MPI_Datatype type, MPI_Op op, int root,
               MPI_Comm comm) {
  Staged from(send, bytes_of(count, type), true);
  Staged to(recv, bytes_of(count, type), true);
  const int result = PMPI_Reduce(from.get(), to.get(), count, type, op, root, comm);
  to.write_back();
  return result;
}

int MPI_Finalize() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::printf("rank %d: %d buffers of GPUs\n", rank, taken);
  return PMPI_Finalize();
}

}  // extern "C"
