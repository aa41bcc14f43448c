#include "preload/mpi/buffers.hpp"

#include <cstdint>
#include <cstdlib>

#include "preload/driver.hpp"
#include "preload/statistics/text.hpp"

namespace polypath::preload::mpi {
namespace {

CUdeviceptr device_address(const void* address) noexcept {
  return reinterpret_cast<CUdeviceptr>(address);
}

/// False where the driver does not know the address, or memory has no such attribute.
template <typename Value>
bool ask(CUpointer_attribute attribute, const void* address, Value* value) noexcept {
  return driver::pointer_get_attribute(static_cast<void*>(value), attribute,
                                       device_address(address)) == CUDA_SUCCESS;
}

/// The GPU whose memory it is; -1: the host's, or managed.
int gpu_of(const void* address) noexcept {
  unsigned type = 0;
  unsigned is_managed = 0;
  int gpu = -1;
  if (address == nullptr || driver_library() == nullptr ||
      !ask(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address, &type) || type != CU_MEMORYTYPE_DEVICE ||
      (ask(CU_POINTER_ATTRIBUTE_IS_MANAGED, address, &is_managed) && is_managed != 0))
    return -1;
  return ask(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address, &gpu) ? gpu : -1;
}

bool is_managed(const void* address) noexcept {
  unsigned is_set = 0;
  return driver_library() != nullptr && address != nullptr &&
         ask(CU_POINTER_ATTRIBUTE_IS_MANAGED, address, &is_set) && is_set != 0;
}

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

/// The bytes that `count` elements of a datatype span, which may have gaps.
struct Span {
  std::intptr_t first = 0;  ///< from the buffer's address
  std::size_t bytes = 0;    ///< 0: there is none, or it is not a plain one
  bool has_gaps = false;
};

Span span_of(std::int64_t count, Handle type) noexcept {
  Span span;
  std::intptr_t low = 0;
  std::intptr_t extent = 0;
  std::intptr_t true_extent = 0;
  std::int64_t size = 0;
  if (count <= 0 || type == library().datatype_null ||
      library().type_size(type, &size) != kSuccess ||
      library().type_get_extent(type, &low, &extent) != kSuccess ||
      library().type_get_true_extent(type, &span.first, &true_extent) != kSuccess)
    return span;
  const std::intptr_t to_last = (count - 1) * extent;
  if (to_last < 0) span.first += to_last;
  span.bytes = static_cast<std::size_t>(std::abs(to_last) + true_extent);
  span.has_gaps = extent != size || true_extent != size;
  return span;
}

/// Host memory in the place of device memory for one call; nothing where the buffer is none.
class HostTwin {
 public:
  HostTwin(const void* buffer, const Span& span) noexcept : buffer_(buffer), span_(span) {
    gpu_ = buffer == nullptr || span.bytes == 0 ? -1 : gpu_of(start());
    if (is_needed()) memory_ = static_cast<char*>(std::malloc(span.bytes));
  }
  ~HostTwin() { std::free(memory_); }
  HostTwin(const HostTwin&) = delete;
  HostTwin& operator=(const HostTwin&) = delete;

  [[nodiscard]] bool is_needed() const noexcept { return gpu_ >= 0; }
  [[nodiscard]] bool is_there() const noexcept { return !is_needed() || memory_ != nullptr; }

  [[nodiscard]] bool load() noexcept {
    return copy(Symbol::cuMemcpyDtoH_v2, memory_, device_address(start()));
  }
  [[nodiscard]] bool store() noexcept {
    return copy(Symbol::cuMemcpyHtoD_v2, device_address(start()), memory_);
  }
  /// What to pass to MPI.
  [[nodiscard]] void* address() const noexcept {
    return is_needed() ? memory_ - span_.first : const_cast<void*>(buffer_);
  }

 private:
  [[nodiscard]] const char* start() const noexcept {
    return static_cast<const char*>(buffer_) + span_.first;
  }
  template <typename To, typename From>
  bool copy(Symbol function, To to, From from) const noexcept {
    if (!is_needed()) return true;
    const PrimaryContext primary(gpu_);
    const InContext current(primary.get());
    return primary.get() != nullptr && current.is_there() &&
           call_driver(function, to, from, span_.bytes) == CUDA_SUCCESS;
  }

  const void* buffer_;
  Span span_;
  int gpu_ = -1;
  char* memory_ = nullptr;
};

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
    case Operation::allreduce:
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
  if (library().takes_device_memory) return call_original(call);
  const bool is_inter = sizes.remote_size > 0;
  const bool is_broadcast = call.operation == Operation::broadcast;
  const bool is_one = call.in_place || is_broadcast;
  const bool is_root = is_broadcast && call.root == (is_inter ? library().root : sizes.rank);
  // MPI_PROC_NULL, beside a root: nothing is looked at.
  const bool is_idle = is_broadcast && is_inter && call.root < 0 && !is_root;
  const Parts parts = parts_of(call, sizes);
  // Of what is in place MPI does not look at the type.
  const Span sent = is_one ? Span{} : span_of(call.send_count * parts.sent, call.send_type);
  const Span received =
      is_idle ? Span{} : span_of(call.recv_count * parts.received, call.recv_type);
  HostTwin send(is_one ? nullptr : call.send, sent);
  HostTwin recv(call.recv, received);
  if (!send.is_needed() && !recv.is_needed()) return call_original(call);
  // What lies in gaps comes back as it was.
  const bool is_read = call.in_place || is_root || received.has_gaps;
  if (!send.is_there() || !recv.is_there() || !send.load() || (is_read && !recv.load()))
    return fail(call);
  count_staged(call.function);
  const int result = call_original(call, is_one ? call.send : send.address(), recv.address());
  if (result == kSuccess && !is_root && !recv.store()) return fail(call);
  return result;
}

}  // namespace polypath::preload::mpi
