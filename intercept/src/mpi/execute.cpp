#include "mpi/execute.hpp"

#include "cuda/driver.hpp"

namespace polypath::preload::mpi {
namespace {

CUdeviceptr device_address(const void* address) noexcept {
  return reinterpret_cast<CUdeviceptr>(address);
}
void* pointer(CUdeviceptr address) noexcept { return reinterpret_cast<void*>(address); }

/// What MPI moves are bytes to polypath: ranks may name their datatypes differently.
constexpr polypath_data_type kBytes = POLYPATH_UINT8;

/// One call on the ranks' stream.
class Issue {
 public:
  Issue(const Call& call, CommState& ranks, std::size_t part_bytes) noexcept
      : call_(call), ranks_(ranks), bytes_(part_bytes) {}

  polypath_status run(const Datatype* datatype) noexcept {
    switch (call_.operation) {
      case Operation::allreduce:
        return polypath_api().all_reduce(ranks_.comm, call_.in_place ? call_.recv : call_.send,
                                         call_.recv, bytes_ / datatype->bytes, type(datatype), op(),
                                         ranks_.stream);
      case Operation::reduce_scatter: return reduce_scatter(datatype);
      case Operation::all_gather: {
        const void* const own = static_cast<char*>(call_.recv) + bytes_ * rank();
        return polypath_api().all_gather(ranks_.comm, call_.in_place ? own : call_.send, call_.recv,
                                         bytes_, kBytes, ranks_.stream);
      }
      case Operation::broadcast:
        return polypath_api().broadcast(ranks_.comm, call_.recv, call_.recv, bytes_, kBytes,
                                        call_.root, ranks_.stream);
      case Operation::all_to_all: return all_to_all();
    }
    return POLYPATH_INVALID_ARGUMENT;
  }

  /// Of the copies beside.
  [[nodiscard]] CUresult result() const noexcept { return result_; }

 private:
  [[nodiscard]] std::size_t rank() const noexcept { return static_cast<std::size_t>(ranks_.rank); }
  [[nodiscard]] static polypath_data_type type(const Datatype* datatype) noexcept {
    return static_cast<polypath_data_type>(datatype->reduced_as);
  }
  [[nodiscard]] polypath_reduce_op op() const noexcept {
    return static_cast<polypath_reduce_op>(find_operator(call_.op));
  }

  /// MPI wants the result of what is in place at the beginning, where other ranks' parts are.
  polypath_status reduce_scatter(const Datatype* datatype) noexcept {
    void* const recv = call_.in_place ? pointer(ranks_.spare) : call_.recv;
    const polypath_status status = polypath_api().reduce_scatter(
        ranks_.comm, call_.in_place ? call_.recv : call_.send, recv, bytes_ / datatype->bytes,
        type(datatype), op(), ranks_.stream);
    if (call_.in_place && status == POLYPATH_SUCCESS)
      result_ = driver::memcpy_on_gpu_async(device_address(call_.recv), ranks_.spare, bytes_,
                                            ranks_.stream);
    return status;
  }

  polypath_status all_to_all() noexcept {
    if (call_.in_place)
      result_ = driver::memcpy_on_gpu_async(ranks_.spare, device_address(call_.recv),
                                            bytes_ * static_cast<std::size_t>(ranks_.size),
                                            ranks_.stream);
    if (result_ != CUDA_SUCCESS) return POLYPATH_DRIVER_ERROR;
    return polypath_api().all_to_all(ranks_.comm,
                                     call_.in_place ? pointer(ranks_.spare) : call_.send,
                                     call_.recv, bytes_, kBytes, ranks_.stream);
  }

  const Call& call_;
  CommState& ranks_;
  std::size_t bytes_;
  CUresult result_ = CUDA_SUCCESS;
};

int fail(const Call& call, CommState& ranks, const char* why) noexcept {
  log_line(LogLevel::error, "%s of rank %d of %d: %s",
           kFunctionNames[static_cast<std::size_t>(call.function)], ranks.rank, ranks.size, why);
  polypath_api().comm_abort(ranks.comm, why);
  library().comm_call_errhandler(call.comm, library().error_other);
  return library().error_other;
}

}  // namespace

int carry(const Call& call, CommState& ranks, const Engine& engine, std::size_t part_bytes,
          const Datatype* datatype) noexcept {
  const PrimaryContext primary(ranks.gpu);
  const InContext current(primary.get());
  Issue issue(call, ranks, part_bytes);
  if (issue.run(datatype) != POLYPATH_SUCCESS) return fail(call, ranks, engine.last_error());
  // Who waits for a rank that is gone is let go within the time limit, and this says so.
  if (polypath_api().comm_synchronize(ranks.comm, ranks.stream) != POLYPATH_SUCCESS)
    return fail(call, ranks, engine.last_error());
  if (issue.result() != CUDA_SUCCESS) return fail(call, ranks, "the GPU's driver failed");
  note_finished(*ranks.progress, ranks.local_rank);
  trim_spare(ranks);
  return kSuccess;
}

}  // namespace polypath::preload::mpi
