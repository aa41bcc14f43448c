#include "mpi/buffers.hpp"

#include <cstdint>
#include <cstdlib>

#include "cuda/driver.hpp"
#include "gate/text.hpp"
#include "mpi/memory_at.hpp"
#include "mpi/staged.hpp"

namespace polypath::preload::mpi {
namespace {

/// Whether a primary context's kernels may use it: memory of mappings and pools has no context.
bool is_of_primary_context(const void* address, int gpu) noexcept {
  CUcontext owner = nullptr;
  if (!ask(CU_POINTER_ATTRIBUTE_CONTEXT, address, &owner) || owner == nullptr) return true;
  const PrimaryContext primary(gpu);
  return primary.get() == owner;
}

bool is_within_allocation(const Buffer& buffer) noexcept {
  CUdeviceptr start = 0;
  std::size_t bytes = 0;
  if (!ask(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, buffer.address, &start) || start == 0 ||
      !ask(CU_POINTER_ATTRIBUTE_RANGE_SIZE, buffer.address, &bytes))
    return true;  // what the driver does not tell
  return device_address(buffer.address) - start + buffer.bytes <= bytes;
}

/// How often a buffer has the count of a call. A sum is scattered among the ranks of the own group;
/// all else that is of each rank is of each rank of the other group, where there is one.
struct Parts {
  std::int64_t sent;
  std::int64_t received;
};

Parts parts_of(const Call& call, const Sizes& sizes) noexcept {
  const std::int64_t own = sizes.size;
  const std::int64_t others = sizes.remote_size > 0 ? sizes.remote_size : sizes.size;
  switch (call.operation) {
    case Operation::all_reduce:
    case Operation::reduce:  // not offloaded for MPI
    case Operation::broadcast: return {1, 1};
    case Operation::reduce_scatter: return {own, call.in_place ? own : 1};
    case Operation::all_gather: return {1, others};
    case Operation::all_to_all: return {others, others};
  }
  return {1, 1};
}

int fail(const Call& call) noexcept {
  log_line(LogLevel::error, "%s: device memory could not be copied to host memory and back",
           kFunctionNames[static_cast<std::size_t>(call.function)]);
  library().comm_call_errhandler(call.comm, library().error_other);
  return library().error_other;
}

}  // namespace

Place place_of(const Buffer& buffer, std::size_t element) noexcept {
  Place place;
  if (is_managed(buffer.address)) return {Reason::managed_memory, -1};
  place.gpu = gpu_of(buffer.address);
  if (place.gpu < 0)
    place.problem = Reason::host_memory;
  else if (device_address(buffer.address) % element != 0)
    place.problem = Reason::misaligned;
  else if (!is_within_allocation(buffer))
    place.problem = Reason::short_buffer;
  else if (!is_of_primary_context(buffer.address, place.gpu))
    place.problem = Reason::other_context;
  return place;
}

int call_mpi(const Call& call, const Sizes& sizes) noexcept {
  if (library().takes_device_memory || driver_library() == nullptr) return call_original(call);
  const bool is_inter = sizes.remote_size > 0;
  const bool is_broadcast = call.operation == Operation::broadcast;
  const bool is_one = call.in_place || is_broadcast;
  const bool is_root = is_broadcast && call.root == (is_inter ? library().root : sizes.rank);
  // MPI_PROC_NULL, next to a root: nothing is looked at.
  const bool is_idle = is_broadcast && is_inter && call.root < 0 && !is_root;
  const Parts parts = parts_of(call, sizes);
  // A function of the program's that combines gets the datatype, and looks at its layout.
  const auto layout =
      combines(call.operation) ? Staged::Layout::as_given : Staged::Layout::packed_where_gaps;
  // Of what is in place MPI does not look at the type.
  Staged send(call.send, is_one ? 0 : call.send_count * parts.sent, call.send_type, layout);
  Staged recv(call.recv, is_idle ? 0 : call.recv_count * parts.received, call.recv_type, layout);
  if (!send.is_needed() && !recv.is_needed()) return call_original(call);
  const bool is_read = call.in_place || is_root;
  if (!send.is_there() || !recv.is_there() || !send.load() || !recv.load(is_read))
    return fail(call);
  count_staged(call.function);
  Call staged = call;
  if (send.is_needed()) staged.send_type = send.type();
  if (recv.is_needed()) staged.recv_type = recv.type();
  const int result = call_original(staged, is_one ? call.send : send.address(), recv.address());
  if (result == kSuccess && !is_root && !recv.store()) return fail(call);
  return result;
}

}  // namespace polypath::preload::mpi
