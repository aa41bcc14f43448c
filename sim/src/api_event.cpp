// Events. Polling a completed event takes no lock; on worker threads no polling does.
#include "call.hpp"

using namespace polypath::sim;

namespace {

void require_not_captured(const Event& event) {
  require(event.capture.capture == nullptr, CUDA_ERROR_CAPTURED_EVENT);
}

}  // namespace

CUresult cuEventCreate(CUevent* handle, unsigned int flags) {
  return call([&](Driver& driver) {
    constexpr unsigned kFlags = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING;
    Context& context = driver.contexts().current();
    out(handle);
    if ((flags & CU_EVENT_INTERPROCESS) != 0) fail_not_supported("interprocess events");
    require((flags & ~kFlags) == 0, CUDA_ERROR_INVALID_VALUE);
    *handle = driver.events().create(context, flags);
  });
}

CUresult cuEventDestroy_v2(CUevent handle) {
  return call([&](Driver& driver) { driver.events().destroy(handle); });
}

CUresult cuEventRecord(CUevent handle, CUstream stream_handle) {
  return call([&](Driver& driver) {
    driver.contexts().current();
    driver.streams().wait_for_room(stream_handle);
    const Event& event = driver.events().get(handle);
    Stream& stream = driver.streams().get(stream_handle);
    require(event.context == stream.context, CUDA_ERROR_INVALID_HANDLE);
    if (stream.capture.is_active()) {
      driver.events().note_captured_record(handle, stream.capture);
      return;
    }
    Events& events = driver.events();
    events.note_record(handle, driver.streams().enqueue(stream, events.record_operation(handle)),
                       stream.id);
    driver.devices().spend(driver.node.costs.call_us);
  });
}

CUresult cuStreamWaitEvent(CUstream stream_handle, CUevent handle, unsigned int flags) {
  return call([&](Driver& driver) {
    driver.contexts().current();
    driver.streams().wait_for_room(stream_handle);
    Stream& stream = driver.streams().get(stream_handle);
    const Event& event = driver.events().get(handle);
    if (flags == CU_EVENT_WAIT_EXTERNAL) {
      require(stream.capture.is_active(), CUDA_ERROR_INVALID_VALUE);
      require_not_captured(event);
      driver.captures().add_node(stream.capture, GraphEvent{handle, event.context, false});
      return;
    }
    require(flags == CU_EVENT_WAIT_DEFAULT, CUDA_ERROR_INVALID_VALUE);
    if (event.capture.capture) {
      require(event.capture.is_active(), CUDA_ERROR_CAPTURED_EVENT);
      require(!stream.is_legacy, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
      stream.capture.join(event.capture);
      return;
    }
    require(!stream.capture.is_active() || !event.record, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    driver.devices().spend(driver.node.costs.call_us);
    if (!event.record || event.stream_id == stream.id) return;
    Operation operation;
    operation.after.push_back(event.record);
    driver.streams().enqueue(stream, std::move(operation));
  });
}

CUresult cuEventQuery(CUevent handle) {
  const auto query = [handle](Driver& driver) {
    require_not_captured(driver.events().get(handle));
    driver.captures().require_unsafe_calls_allowed();
    driver.devices().spend(driver.node.costs.call_us);
    driver.devices().catch_up();
    return driver.events().mark(handle) == Mark::settled ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  };
  return guarded([&] {
    Driver& driver = driver_instance();
    switch (driver.events().mark(handle)) {
      case Mark::settled: return CUDA_SUCCESS;
      case Mark::pending:
        if (!driver.captures().any()) return CUDA_ERROR_NOT_READY;
        break;
      case Mark::none: break;
    }
    return call(query);
  });
}

CUresult cuEventSynchronize(CUevent handle) {
  return call([&](Driver& driver) {
    const Event& event = driver.events().get(handle);
    require_not_captured(event);
    driver.captures().require_unsafe_calls_allowed();
    driver.devices().spend(driver.node.costs.call_us);
    const CUcontext context = event.context;
    if (event.record) driver.devices().wait(OperationPtr(event.record));
    if (const Context* const owner = driver.contexts().find(context)) owner->require_no_fault();
  });
}

CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent start_handle, CUevent end_handle) {
  return call([&](Driver& driver) {
    const Event& start = driver.events().get(start_handle);
    const Event& end = driver.events().get(end_handle);
    out(milliseconds);
    for (const Event* event : {&start, &end}) {
      require_not_captured(*event);
      require(event->has_timing() && event->record, CUDA_ERROR_INVALID_HANDLE);
    }
    require(start.context == end.context, CUDA_ERROR_INVALID_HANDLE);
    driver.devices().catch_up();
    if (!start.record->done || !end.record->done) return CUDA_ERROR_NOT_READY;
    const double us = end.record->timestamp_us - start.record->timestamp_us;
    *milliseconds = static_cast<float>(us / 1e3);
    return CUDA_SUCCESS;
  });
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  return cuEventElapsedTime_v2(milliseconds, start, end);
}
