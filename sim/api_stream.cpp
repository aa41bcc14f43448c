// Streams: life, order, waiting.
#include <algorithm>

#include "call.hpp"

using namespace polypath::sim;

namespace {

constexpr int kLeastPriority = 0;
constexpr int kGreatestPriority = -5;

CUresult create(CUstream* handle, unsigned flags, int priority) {
  return call([&](Driver& driver) {
    Context& context = driver.current_context();
    out(handle);
    require((flags & ~unsigned{CU_STREAM_NON_BLOCKING}) == 0, CUDA_ERROR_INVALID_VALUE);
    auto stream = std::make_unique<Stream>();
    stream->context = context.handle;
    stream->device = context.device;
    stream->id = driver.next_stream_id();
    stream->flags = flags;
    stream->priority = std::clamp(priority, kGreatestPriority, kLeastPriority);
    *handle = driver.streams.add(std::move(stream));
    context.streams.insert(*handle);
  });
}

/// What the value in memory has to fulfil.
bool holds(std::uint32_t found, std::uint32_t value, unsigned condition) {
  switch (condition) {
    case CU_STREAM_WAIT_VALUE_GEQ: return static_cast<std::int32_t>(found - value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ: return found == value;
    case CU_STREAM_WAIT_VALUE_AND: return (found & value) != 0;
  }
  fail_not_supported("cuStreamWaitValue32 with this condition");
}

}  // namespace

CUresult cuStreamCreate(CUstream* stream, unsigned int flags) {
  return create(stream, flags, kLeastPriority);
}

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned int flags, int priority) {
  return create(stream, flags, priority);
}

// Work already issued goes on.
CUresult cuStreamDestroy_v2(CUstream handle) {
  return call([&](Driver& driver) {
    const Stream& stream = driver.streams.get(handle);
    Driver::require_no_capture(stream);
    Context& context = driver.contexts.get(stream.context);
    context.streams.erase(handle);
    if (stream.tail) context.add_orphan(stream.tail);
    driver.streams.remove(handle);
  });
}

CUresult cuStreamSynchronize(CUstream handle) {
  return call([&](Driver& driver) {
    Stream& stream = driver.stream(handle);
    Driver::require_no_capture(stream);
    driver.require_capture_allows();
    driver.spend(driver.node.costs.call_us);
    if (stream.tail) driver.wait(OperationPtr(stream.tail));
  });
}

CUresult cuStreamQuery(CUstream handle) {
  return call([&](Driver& driver) {
    Stream& stream = driver.stream(handle);
    Driver::require_no_capture(stream);
    driver.require_capture_allows();
    driver.spend(driver.node.costs.call_us);
    driver.catch_up();
    return !stream.tail || stream.tail->done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  });
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext* context) {
  return call([&](Driver& driver) { out(context) = driver.stream(handle).context; });
}

CUresult cuStreamGetId(CUstream handle, unsigned long long* id) {
  return call([&](Driver& driver) { out(id) = driver.stream(handle).id; });
}

CUresult cuStreamWaitValue32_v2(CUstream handle, CUdeviceptr address, cuuint32_t value,
                                unsigned int flags) {
  return call([&](Driver& driver) {
    driver.current_context();
    driver.wait_for_room(handle);
    Stream& stream = driver.stream(handle);
    Driver::require_no_capture(stream);
    const AllocationPtr allocation = driver.memory.find(address);
    require(allocation && address % sizeof value == 0, CUDA_ERROR_INVALID_VALUE);
    require(address - allocation->base + sizeof value <= allocation->bytes,
            CUDA_ERROR_INVALID_VALUE);
    const unsigned condition = flags & ~unsigned{CU_STREAM_WAIT_VALUE_FLUSH};
    holds(0, value, condition);
    Operation operation;
    operation.may_complete = [allocation, address, value, condition] {
      // The program may write host memory at any time, from any thread.
      const auto* const word =
          reinterpret_cast<const std::uint32_t*>(allocation->read(address, sizeof value));
      return holds(__atomic_load_n(word, __ATOMIC_ACQUIRE), value, condition);
    };
    driver.enqueue(stream, std::move(operation));
    driver.spend(driver.node.costs.call_us);
  });
}

// The function runs on a thread of the driver, and may not call it.
CUresult cuStreamAddCallback(CUstream handle, CUstreamCallback function, void* data,
                             unsigned int flags) {
  return call([&](Driver& driver) {
    driver.current_context();
    driver.wait_for_room(handle);
    Stream& stream = driver.stream(handle);
    Driver::require_no_capture(stream);
    require(function != nullptr && flags == 0, CUDA_ERROR_INVALID_VALUE);
    Operation operation;
    operation.move = [handle, function, data] { function(handle, CUDA_SUCCESS, data); };
    driver.enqueue(stream, std::move(operation));
    driver.spend(driver.node.costs.call_us);
  });
}
