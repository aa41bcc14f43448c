#include "exec/executor.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

namespace polypath {
namespace {

/// What the fork, the wait for the ring and the end put on a leg's stream, a failed run's end
/// included.
constexpr int kOperationsARun = 5;

/// What each route's steps put on the stream of each leg, at most: copies, waits, records.
std::vector<std::array<int, 2>> operations_of(const TransferSchedule& transfer) {
  std::vector<std::array<int, 2>> operations(transfer.routes.size(),
                                             {kOperationsARun, kOperationsARun});
  for (const Step& step : transfer.steps)
    operations[route_of(step)][leg_of(step)] += 1 + step.after.count + (step.is_awaited ? 1 : 0);
  return operations;
}

std::vector<std::size_t> staged_of(const TransferSchedule& transfer) {
  std::vector<std::size_t> staged;
  for (std::size_t r = 0; r < transfer.routes.size(); ++r)
    if (transfer.routes[r].staged()) staged.push_back(r);
  return staged;
}

}  // namespace

LeasedRun::LeasedRun(const CudaDriver& driver, RouteResources& resources,
                     const GroupSchedule& schedule, const std::vector<BoundTransfer>& transfers)
    : driver_(driver),
      resources_(resources),
      schedule_(schedule),
      transfers_(transfers),
      guard_(driver),
      tickets_(transfers.size()),
      leases_(transfers.size()),
      uses_(transfers.size()),
      gathers_(transfers.size()) {}

const Route* LeasedRun::lease_transfer(std::size_t t, bool channels) {
  const TransferSchedule& transfer = schedule_of(t);
  const BoundTransfer& bound = transfers_[t];
  leases_[t].clear();
  leases_[t].resize(transfer.routes.size());
  uses_[t].assign(transfer.routes.size(), {});
  gathers_[t].reset();
  is_filled_ = false;
  std::vector<std::array<int, 2>> operations;
  if (channels) operations = operations_of(transfer);
  const std::vector<std::size_t> staged = staged_of(transfer);
  for (std::size_t r = 0; r < transfer.routes.size(); ++r) {
    const Route& route = transfer.routes[r];
    if (!route.staged()) continue;
    if (gathers_[t] == r) operations[r][1] += static_cast<int>(staged.size()) - 1;
    auto lease = resources_.lease(
        route, tickets_[t], channels ? std::optional{operations[r]} : std::nullopt, is_filled_);
    if (!lease) return &route;
    leases_[t][r] = std::move(*lease);
    if (r == staged.front() && staged.size() > 1 && leases_[t][r].is_held_back() &&
        bound.sample == nullptr)
      gathers_[t] = staged.back();
    uses_[t][r].first = leases_[t][r].channel(0);
    uses_[t][r].second = leases_[t][r].channel(1);
    if (tickets_[t]->in_sequence() && leases_[t][r].ring_free() != nullptr) narrow_ = &route;
  }
  for (const Step& step : transfer.steps) {
    if (leg_of(step) != 0) continue;
    RouteAccess& use = uses_[t][route_of(step)];
    // A route's steps are in the order of its share.
    if (use.bytes == 0) {
      use.dst = bound.dst + step.from.offset;
      use.src = bound.src + step.from.offset;
    }
    use.bytes += step.bytes;
  }
  return nullptr;
}

const Route* LeasedRun::lease(bool channels) {
  for (std::size_t t = 0; t < transfers_.size(); ++t) {
    const BoundTransfer& bound = transfers_[t];
    leases_[t].resize(schedule_of(t).routes.size());
    if (!schedule_of(t).split()) continue;
    if (bound.follows && channels) {
      tickets_[t] = resources_.sequences().follow(bound.caller);
      if (tickets_[t] != nullptr && lease_transfer(t, channels) == nullptr &&
          resources_.sequences().allows(bound.caller, uses_[t]))
        continue;
      leases_[t].clear();
      narrow_ = nullptr;
    }
    // A record more on the caller's stream would cost a sampled transfer time.
    EventPool& events = bound.sample != nullptr ? bound.sample->events() : resources_.events();
    tickets_[t] = std::make_shared<TransferState>(
        bound.caller, std::make_shared<PooledEvent>(events, bound.caller_gpu));
    if (const Route* const busy = lease_transfer(t, channels)) return busy;
  }
  return nullptr;
}

int LeasedRun::followed() const noexcept {
  return static_cast<int>(std::ranges::count_if(
      tickets_, [](const auto& ticket) { return ticket != nullptr && ticket->in_sequence(); }));
}

void LeasedRun::remember_sequences() {
  for (std::size_t t = 0; t < transfers_.size(); ++t) {
    if (tickets_[t] == nullptr) {
      resources_.sequences().end(transfers_[t].caller);
    } else {
      resources_.sequences().add(tickets_[t], std::move(uses_[t]), tickets_[t]->in_sequence(),
                                 schedule_of(t).request);
    }
  }
}

void LeasedRun::end_sequences() noexcept {
  for (const BoundTransfer& transfer : transfers_) resources_.sequences().end(transfer.caller);
}

void LeasedRun::mark_failed_gpus() noexcept {
  for (std::size_t t = 0; t < transfers_.size(); ++t)
    for (const Route& route : schedule_of(t).routes) resources_.mark_failed_gpus(route);
}

void LeasedRun::fork() {
  for (std::size_t t = 0; t < tickets_.size(); ++t) {
    TransferState* const ticket = tickets_[t].get();
    if (ticket == nullptr) continue;
    TransferSample* const sample = transfers_[t].sample.get();
    if (ticket->in_sequence() && sample == nullptr) continue;
    guard_.use(ticket->caller().context);
    if (ticket->in_sequence()) {
      sample->begin(driver_, ticket->caller().stream);
    } else {
      ticket->record(driver_);
      if (sample != nullptr) sample->begin(ticket->fork_event());
    }
  }
}

CUdeviceptr LeasedRun::address(std::size_t transfer, const Step& step, const Place& place) const {
  const std::size_t route = route_of(step);
  const BoundTransfer& bound = transfers_[transfer];
  const RouteLease& lease = leases_[transfer][route];
  switch (place.buffer) {
    case BufferKind::input: return (lease ? bound.ends[route].src : bound.src) + place.offset;
    case BufferKind::output: return (lease ? bound.ends[route].dst : bound.dst) + place.offset;
    case BufferKind::host: break;
    case BufferKind::scratch: return lease.ring().memory->address() + place.offset;
  }
  return 0;
}

}  // namespace polypath
