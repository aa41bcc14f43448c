// By MPI's own calls, on memory of GPUs: messages of an MPI that takes it. The double of a sum goes
// by way of the host, as MPIs that do not reduce it there need it.
#pragma once

#include "by_uniconn.hpp"
#include "polypath/uniconn/backend/mpi.hpp"

namespace uniconn_bench {

template <>
class Native<uc::MPIBackend> {
 public:
  /// Whether this MPI takes memory of GPUs, as it or POLYPATH_UNICONN_MPI says.
  static bool is_possible() {
    return uc::detail::detect_mpi_gpu_support() != uc::detail::MpiGpuSupport::host_memory;
  }

  Native(const uc::Bootstrap& bootstrap, int, const Gpu& gpu)
      : gpu_(gpu), rank_(bootstrap.rank()), size_(bootstrap.size()) {
    uc::detail::check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &comm_), "MPI_Comm_dup");
  }
  ~Native() {
    MPI_Comm_free(&comm_);
    for (const auto memory : memory_) gpu_.cuda.free(memory);
  }
  Native(const Native&) = delete;
  Native& operator=(const Native&) = delete;

  void* allocate(std::size_t bytes) {
    uc::detail::DevicePointer memory = 0;
    gpu_.cuda.check(gpu_.cuda.alloc(&memory, bytes), "cuMemAlloc");
    memory_.push_back(memory);
    return reinterpret_cast<void*>(memory);
  }
  void start() {
    is_open_ = true;
    gpu_.synchronize();
  }
  void post(const void* src, void*, std::size_t bytes, std::size_t, int to) {
    if (!is_open_) {
      gpu_.synchronize();
      uc::detail::check_mpi(MPI_Send(src, static_cast<int>(bytes), MPI_BYTE, to, 0, comm_),
                            "MPI_Send");
      return;
    }
    requests_.push_back(MPI_REQUEST_NULL);
    uc::detail::check_mpi(
        MPI_Isend(src, static_cast<int>(bytes), MPI_BYTE, to, 0, comm_, &requests_.back()),
        "MPI_Isend");
  }
  void acknowledge(void* dest, std::size_t bytes, std::size_t, int from) {
    if (!is_open_) {
      gpu_.synchronize();
      uc::detail::check_mpi(
          MPI_Recv(dest, static_cast<int>(bytes), MPI_BYTE, from, 0, comm_, MPI_STATUS_IGNORE),
          "MPI_Recv");
      return;
    }
    requests_.push_back(MPI_REQUEST_NULL);
    uc::detail::check_mpi(
        MPI_Irecv(dest, static_cast<int>(bytes), MPI_BYTE, from, 0, comm_, &requests_.back()),
        "MPI_Irecv");
  }
  void end() {
    is_open_ = false;
    uc::detail::check_mpi(
        MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE),
        "MPI_Waitall");
    requests_.clear();
  }
  void all_gather(double* vector, const std::size_t* counts, const std::size_t* firsts) {
    start();
    for (int step = 1; step < size_; ++step) {
      const int to = (rank_ + step) % size_;
      const int from = (rank_ - step + size_) % size_;
      post(vector + firsts[rank_], nullptr, counts[rank_] * sizeof(double), 0, to);
      acknowledge(vector + firsts[from], counts[from] * sizeof(double), 0, from);
    }
    end();
  }
  void all_reduce(double* word) {
    double sum = gpu_.read<double>(word, 1).front();
    uc::detail::check_mpi(MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_DOUBLE, MPI_SUM, comm_),
                          "MPI_Allreduce");
    gpu_.write(word, &sum, sizeof sum);
  }

 private:
  const Gpu& gpu_;
  int rank_;
  int size_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  std::vector<uc::detail::DevicePointer> memory_;
  bool is_open_ = false;
  std::vector<MPI_Request> requests_;
};

}  // namespace uniconn_bench
