// MPI itself: that it runs, its communicators, what it takes. For MPIBackend.
#pragma once

#include <mpi.h>
#if defined(OPEN_MPI) && OPEN_MPI
#include <mpi-ext.h>
#endif

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "polypath/uniconn/bootstrap.hpp"
#include "polypath/uniconn/cuda.hpp"

namespace polypath::uniconn {
namespace detail {

inline void check_mpi(int result, const char* call) {
  if (result == MPI_SUCCESS) return;
  std::string text(MPI_MAX_ERROR_STRING, '\0');
  int length = 0;
  MPI_Error_string(result, text.data(), &length);
  text.resize(static_cast<std::size_t>(length));
  throw backend_error(result, std::string(call) + ": " + text);
}

/// The most bytes of one message, and elements of one call: counts of MPI are ints. Longer ones go
/// in pieces. Tests have smaller ones.
inline std::size_t mpi_piece = std::size_t{1} << 30U;

/// An initialised MPI; its initialiser finalises it.
class MpiRun {
 public:
  MpiRun(int* argc, char*** argv) {
    int is_there = 0;
    int is_over = 0;
    MPI_Finalized(&is_over);
    if (is_over != 0)
      throw error(POLYPATH_INVALID_ARGUMENT, "MPI was finalised, and cannot begin again");
    MPI_Initialized(&is_there);
    if (is_there == 0) {
      check_mpi(MPI_Init(argc, argv), "MPI_Init");
      is_ours_ = true;
    }
    ranks = MPI_COMM_WORLD;
  }
  explicit MpiRun(MPI_Comm comm) : ranks(comm) {}
  ~MpiRun() {
    int is_over = 0;
    MPI_Finalized(&is_over);
    if (is_ours_ && is_over == 0) MPI_Finalize();
  }
  MpiRun(const MpiRun&) = delete;
  MpiRun& operator=(const MpiRun&) = delete;

  MPI_Comm ranks = MPI_COMM_NULL;

 private:
  bool is_ours_ = false;
};

inline int mpi_exchange(const void* own, void* all, std::size_t bytes, void* user) {
  const auto count = static_cast<int>(bytes);
  return MPI_Allgather(own, count, MPI_BYTE, all, count, MPI_BYTE,
                       static_cast<MpiRun*>(user)->ranks) == MPI_SUCCESS
             ? 0
             : 1;
}

inline Bootstrap bootstrap_of(const std::shared_ptr<MpiRun>& run) {
  int rank = 0;
  int size = 1;
  check_mpi(MPI_Comm_rank(run->ranks, &rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(run->ranks, &size), "MPI_Comm_size");
  return {rank, size, &mpi_exchange, run.get(), run};
}

/// A communicator of our own, whose errors come back.
class MpiComm {
 public:
  explicit MpiComm(MPI_Comm comm) : comm_(comm) {
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  }
  ~MpiComm() {
    int is_over = 0;
    MPI_Finalized(&is_over);
    if (is_over == 0) MPI_Comm_free(&comm_);
  }
  MpiComm(const MpiComm&) = delete;
  MpiComm& operator=(const MpiComm&) = delete;
  [[nodiscard]] MPI_Comm get() const noexcept { return comm_; }

 private:
  MPI_Comm comm_;
};

/// What this MPI takes.
enum class MpiGpuSupport { host_memory, messages_of_gpus, gpu_memory };

inline MpiGpuSupport detect_mpi_gpu_support() {
  if (const char* const setting = std::getenv("POLYPATH_UNICONN_MPI")) {
    const std::string word = setting;
    if (word == "host") return MpiGpuSupport::host_memory;
    if (word == "messages") return MpiGpuSupport::messages_of_gpus;
    if (word == "gpu") return MpiGpuSupport::gpu_memory;
    throw error(
        POLYPATH_INVALID_ARGUMENT,
        ("POLYPATH_UNICONN_MPI is '" + word + "': host, messages or gpu is wanted").c_str());
  }
#if defined(MPIX_CUDA_AWARE_SUPPORT)
  if (MPIX_Query_cuda_support() == 1) return MpiGpuSupport::gpu_memory;
#elif defined(MPIX_GPU_SUPPORT_CUDA)
  int takes = 0;
  if (MPIX_GPU_query_support(MPIX_GPU_SUPPORT_CUDA, &takes) == MPI_SUCCESS && takes != 0)
    return MpiGpuSupport::gpu_memory;
#endif
  return MpiGpuSupport::host_memory;
}

/// Pinned host memory that is lent and given back.
class PinnedPool {
 public:
  explicit PinnedPool(const Cuda& cuda) : cuda_(cuda) {}
  ~PinnedPool() {
    for (const auto& [bytes, memory] : free_) cuda_.host_free(memory);
  }
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  using Lent = std::pair<std::size_t, void*>;
  Lent lend(std::size_t bytes) {
    for (auto& each : free_)
      if (each.first >= bytes) {
        const Lent lent = each;
        each = free_.back();
        free_.pop_back();
        return lent;
      }
    std::size_t rounded = 4096;
    while (rounded < bytes) rounded *= 2;
    Lent lent{rounded, nullptr};
    cuda_.check(cuda_.host_alloc(&lent.second, rounded, 0), "cuMemHostAlloc");
    return lent;
  }
  void release(const Lent& lent) { free_.push_back(lent); }

 private:
  const Cuda& cuda_;
  std::vector<Lent> free_;
};

}  // namespace detail
}  // namespace polypath::uniconn
