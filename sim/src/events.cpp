#include "events.hpp"

#include <memory>
#include <utility>

namespace polypath::sim {

CUevent Events::create(Context& context, unsigned flags) {
  auto event = std::make_unique<Event>();
  event->context = context.handle;
  event->flags = flags;
  const CUevent handle = table_.add(std::move(event));
  table_.set_mark(handle, Mark::settled);  // an event never recorded counts as complete
  context.events.insert(handle);
  return handle;
}

void Events::destroy(CUevent handle) {
  contexts_.get(table_.get(handle).context).events.erase(handle);
  table_.remove(handle);
}

void Events::destroy_all(const Context& context) {
  for (const CUevent handle : context.events) table_.remove(handle);
}

Operation Events::record_operation(CUevent handle) {
  Operation operation;
  operation.is_delayable = true;
  // The serial number of the next record.
  operation.effect = [this, handle, serial = table_.get(handle).serial + 1] {
    const Event* const recorded = table_.find(handle);
    if (recorded != nullptr && recorded->serial == serial) table_.set_mark(handle, Mark::settled);
  };
  return operation;
}

void Events::note_record(CUevent handle, OperationPtr record, std::uint64_t stream_id) {
  Event& event = table_.get(handle);
  event.record = std::move(record);
  table_.set_mark(handle, is_functional_ ? Mark::pending : Mark::none);
  ++event.serial;
  event.capture = {};
  event.stream_id = stream_id;
}

void Events::note_captured_record(CUevent handle, const CaptureMember& capture) {
  Event& event = table_.get(handle);
  table_.set_mark(handle, Mark::none);
  ++event.serial;
  event.capture = capture;
  event.record = nullptr;
}

}  // namespace polypath::sim
