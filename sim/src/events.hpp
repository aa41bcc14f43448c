// Events, and what the record of one is.
//
// Events owns all events, guarded by the driver's lock; mark() needs none. A record has two halves:
// record_operation() makes the operation, and note_record() is told of it once it is issued.
#pragma once

#include <cstddef>
#include <cstdint>

#include "contexts.hpp"
#include "cuda_api.hpp"
#include "handle_table.hpp"
#include "objects.hpp"
#include "operation.hpp"

namespace polypath::sim {

class Events {
 public:
  /// `contexts` must outlive this. `is_functional`: an event is known to be pending without the
  /// lock. In virtual time a poll lets time pass, and needs the lock.
  Events(Contexts& contexts, bool is_functional)
      : contexts_(contexts), is_functional_(is_functional) {}

  CUevent create(Context& context, unsigned flags);
  void destroy(CUevent handle);
  void destroy_all(const Context& context);
  /// Failure INVALID_HANDLE when there is none.
  Event& get(CUevent handle) const { return table_.get(handle); }
  [[nodiscard]] std::size_t live() const noexcept { return table_.live(); }
  /// settled: its record has completed, or there is none; pending: it has not; none: not known
  /// without the lock. Lock-free.
  [[nodiscard]] Mark mark(CUevent handle) const noexcept { return table_.mark(handle); }

  /// What the next record of the event is on a stream.
  Operation record_operation(CUevent handle);
  void note_record(CUevent handle, OperationPtr record, std::uint64_t stream_id);
  /// The event was recorded on a stream in capture.
  void note_captured_record(CUevent handle, const CaptureMember& capture);

 private:
  Contexts& contexts_;
  const bool is_functional_;
  HandleTable<CUevent, Event, 0x51E0> table_;
};

}  // namespace polypath::sim
