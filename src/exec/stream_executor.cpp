#include "exec/stream_executor.hpp"

#include <cstddef>

#include "base/log.hpp"
#include "driver/check.hpp"
#include "exec/context_guard.hpp"

namespace polypath {

/// One run, from fork to join.
class StreamExecutor::Run {
 public:
  Run(const CudaDriver& driver, EventPool& events, const Schedule& schedule,
      std::vector<BoundTransfer>& transfers)
      : driver_(driver),
        events_(events),
        schedule_(schedule),
        transfers_(transfers),
        guard_(driver),
        chunk_events_(schedule.copies.size(), nullptr) {}

  ~Run() {
    for (std::size_t i = 0; i < chunk_events_.size(); ++i)
      if (chunk_events_[i] != nullptr) release_event(static_cast<int>(i));
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  [[nodiscard]] bool copied() const noexcept { return copied_; }

  /// One event on each caller's stream, before anything.
  void fork() {
    for (BoundTransfer& transfer : transfers_) {
      if (transfer.ticket == nullptr) continue;
      guard_.use(transfer.caller.context);
      POLYPATH_CHECK(driver_, event_record(transfer.ticket->fork(), transfer.caller.stream));
    }
  }

  /// The direct copies, which the schedule lists first, do not wait until the staged routes are set up.
  void copy_all() {
    const int count = static_cast<int>(schedule_.copies.size());
    int next = 0;
    while (next < count && lease_of(next).ring == nullptr) issue(next++);
    open_routes();
    while (next < count) issue(next++);
  }

  /// Every staged route waits for its transfer's fork, and for its ring.
  void open_routes() {
    for (BoundTransfer& transfer : transfers_) {
      for (RouteLease& lease : transfer.leases) {
        if (lease.ring == nullptr) continue;
        guard_.use(lease.first->context);
        POLYPATH_CHECK(driver_, stream_wait_event(lease.first->stream, transfer.ticket->fork(), 0));
        if (lease.ring_free != nullptr)
          POLYPATH_CHECK(driver_,
                         stream_wait_event(lease.first->stream, lease.ring_free->get(), 0));
      }
    }
  }

  /// Each caller's stream waits for one event a staged route, after everything.
  void join() {
    for (BoundTransfer& transfer : transfers_) {
      for (RouteLease& lease : transfer.leases) {
        if (lease.ring == nullptr) continue;
        auto end = std::make_shared<PooledEvent>(events_, lease.second->gpu);
        guard_.use(lease.second->context);
        POLYPATH_CHECK(driver_, event_record(end->get(), lease.second->stream));
        guard_.use(transfer.caller.context);
        POLYPATH_CHECK(driver_, stream_wait_event(transfer.caller.stream, end->get(), 0));
        lease.ring->last_read = std::move(end);
      }
    }
  }

  /// From here on later transfers queue behind these.
  void leave_tickets() {
    for (BoundTransfer& transfer : transfers_) {
      for (RouteLease& lease : transfer.leases) {
        if (lease.ring == nullptr) continue;
        lease.first->tail = lease.second->tail = lease.ring->tail = transfer.ticket;
      }
    }
  }

  /// After a failure: the caller's stream waits for whatever was issued. What cannot even be joined is
  /// never used again.
  void join_after_failure() noexcept {
    for (BoundTransfer& transfer : transfers_) {
      for (RouteLease& lease : transfer.leases) {
        if (lease.ring == nullptr) continue;
        try {
          const PooledEvent first_end(events_, lease.first->gpu);
          auto end = std::make_shared<PooledEvent>(events_, lease.second->gpu);
          guard_.use(lease.first->context);
          POLYPATH_CHECK(driver_, event_record(first_end.get(), lease.first->stream));
          guard_.use(lease.second->context);
          POLYPATH_CHECK(driver_, stream_wait_event(lease.second->stream, first_end.get(), 0));
          POLYPATH_CHECK(driver_, event_record(end->get(), lease.second->stream));
          guard_.use(transfer.caller.context);
          POLYPATH_CHECK(driver_, stream_wait_event(transfer.caller.stream, end->get(), 0));
          lease.ring->last_read = std::move(end);
        } catch (const std::exception& error) {
          lease.first->broken = lease.second->broken = lease.ring->broken = true;
          log_warn("streams were given up after a failed transfer: {}", error.what());
        }
      }
    }
    leave_tickets();
  }

 private:
  [[nodiscard]] const RouteLease& lease_of(int index) const {
    const Copy& copy = schedule_.copies[static_cast<std::size_t>(index)];
    return transfers_[static_cast<std::size_t>(copy.transfer)]
        .leases[static_cast<std::size_t>(copy.route)];
  }

  void issue(int index) {
    const Copy& copy = schedule_.copies[static_cast<std::size_t>(index)];
    BoundTransfer& transfer = transfers_[static_cast<std::size_t>(copy.transfer)];
    const RouteLease& lease = lease_of(index);
    if (lease.ring == nullptr) {
      guard_.use(transfer.caller.context);
      copy_bytes(transfer.dst + copy.offset, transfer.src + copy.offset, copy.bytes,
                 transfer.caller.stream);
      return;
    }

    const Channel& channel = copy.leg == 0 ? *lease.first : *lease.second;
    guard_.use(channel.context);
    if (copy.after != kNoCopy) {
      POLYPATH_CHECK(driver_,
                     stream_wait_event(channel.stream,
                                       chunk_events_[static_cast<std::size_t>(copy.after)], 0));
      release_event(copy.after);
    }
    const RingShape& shape =
        schedule_
            .rings[static_cast<std::size_t>(copy.transfer)][static_cast<std::size_t>(copy.route)];
    const CUdeviceptr slot =
        lease.ring->memory + static_cast<std::uint64_t>(copy.slot) * shape.slot_bytes;
    if (copy.leg == 0) {
      copy_bytes(slot, lease.ends.src + copy.offset, copy.bytes, channel.stream);
    } else {
      copy_bytes(lease.ends.dst + copy.offset, slot, copy.bytes, channel.stream);
    }
    if (copy.awaited) {
      CUevent& event = chunk_events_[static_cast<std::size_t>(index)];
      event = events_.acquire(channel.gpu);
      POLYPATH_CHECK(driver_, event_record(event, channel.stream));
    }
  }

  void copy_bytes(CUdeviceptr dst, CUdeviceptr src, std::uint64_t bytes, CUstream stream) {
    POLYPATH_CHECK(driver_, memcpy_async(dst, src, bytes, stream));
    copied_ = true;
  }

  /// The one wait for it was issued, so the event may be recorded anew.
  void release_event(int index) {
    const Copy& copy = schedule_.copies[static_cast<std::size_t>(index)];
    const RouteLease& lease = lease_of(index);
    CUevent& event = chunk_events_[static_cast<std::size_t>(index)];
    events_.release(copy.leg == 0 ? lease.first->gpu : lease.second->gpu, event);
    event = nullptr;
  }

  const CudaDriver& driver_;
  EventPool& events_;
  const Schedule& schedule_;
  std::vector<BoundTransfer>& transfers_;
  ContextGuard guard_;
  std::vector<CUevent> chunk_events_;  // by copy: recorded, not yet waited for
  bool copied_ = false;
};

RunOutcome StreamExecutor::run(const Schedule& schedule, std::vector<BoundTransfer>& transfers) {
  Run run(*driver_, events_, schedule, transfers);
  try {
    run.fork();
    run.copy_all();
    run.join();
  } catch (const std::exception& error) {
    run.join_after_failure();
    if (run.copied()) throw;
    log_info("native copy instead: {}", error.what());
    return RunOutcome::failed_before_first_copy;
  }
  run.leave_tickets();
  return RunOutcome::done;
}

}  // namespace polypath
