// The C API of the interceptors (offload.h): one collective, over staging memory where this rank's
// buffers need it.
#include "polypath/offload.h"

#include <exception>
#include <iterator>
#include <memory>
#include <utility>

#include "collectives/call_arguments.hpp"
#include "collectives/comm_collectives.hpp"
#include "core/c_boundary.hpp"
#include "staging_buffer.hpp"

using namespace polypath;

namespace {

constexpr CollectiveOp kOps[] = {CollectiveOp::allreduce, CollectiveOp::reduce_scatter,
                                 CollectiveOp::reduce,    CollectiveOp::all_gather,
                                 CollectiveOp::broadcast, CollectiveOp::all_to_all};
static_assert(std::size(kOps) == POLYPATH_OFFLOAD_ALL_TO_ALL + 1);

/// Where it fails, the other ranks have issued their part, and would wait for this rank's.
template <typename Step>
void try_step(polypath_comm& comm, const char* reason, Step&& step) {
  try {
    step();
  } catch (const std::exception& error) {
    local_of(&comm).abort(reason);
    const auto* const failed = dynamic_cast<const DriverError*>(&error);
    throw DriverError(reason, failed != nullptr ? failed->code() : CUDA_ERROR_UNKNOWN);
  }
}

void run_staged(polypath_comm& comm, const CollectiveCall& call, CUstream stream, bool may_wait) {
  constexpr const char* kNotCopied = "a rank cannot copy a buffer that kernels do not reach";
  constexpr std::size_t kAlignment = 256;
  const Communicator& communicator = local_of(&comm);
  const OperandBytes bytes = operand_bytes(call, communicator.rank(), communicator.size());
  require((bytes.sent == 0 || call.send != 0) && (bytes.received == 0 || call.recv != 0),
          "send or recv is null");
  const std::size_t recv_offset = (bytes.sent + kAlignment - 1) / kAlignment * kAlignment;
  CollectiveCall staged = call;
  try_step(comm, "a rank has no memory for a buffer that kernels do not reach", [&] {
    if (comm.extensions.find<StagingBuffer>() == nullptr)
      comm.extensions.add(
          std::make_unique<StagingBuffer>(communicator.driver(), communicator.primary_context()));
    staged.send = comm.extensions.find<StagingBuffer>()->acquire(recv_offset + bytes.received,
                                                                 stream, may_wait);
    staged.recv = staged.send + recv_offset;
  });
  StagingBuffer& staging = *comm.extensions.find<StagingBuffer>();
  std::exception_ptr failure;
  try {
    if (bytes.sent > 0)
      try_step(comm, kNotCopied, [&] { staging.copy_in(call.send, 0, bytes.sent, stream); });
    run_collective(&comm, staged, stream);
    if (bytes.received > 0)
      try_step(comm, kNotCopied,
               [&] { staging.copy_out(call.recv, recv_offset, bytes.received, stream); });
  } catch (...) {
    failure = std::current_exception();
  }
  if (failure == nullptr)
    return try_step(comm, "the driver cannot keep calls on streams in their order",
                    [&] { staging.release(stream); });
  try {
    staging.release(stream);
  } catch (const DriverError&) {  // the call has failed already
  }
  std::rethrow_exception(failure);
}

}  // namespace

polypath_status polypath_offload_collective(polypath_comm* comm, const polypath_offload_call* call,
                                            int may_wait) {
  return guarded([&] {
    require(comm != nullptr, "comm is null");
    require(call != nullptr, "call is null");
    require(call->op >= 0 && call->op <= POLYPATH_OFFLOAD_ALL_TO_ALL, "call->op is none");
    const CollectiveCall collective = call_of(kOps[call->op], call->send, call->recv, call->count,
                                              call->type, call->reduction, call->root);
    auto* const stream = static_cast<CUstream>(call->stream);
    try {
      run_collective(comm, collective, stream);
    } catch (const RefusedBuffers&) {
      if (!comm->retries_buffers) throw;
      run_staged(*comm, collective, stream, may_wait != 0);
    }
  });
}
