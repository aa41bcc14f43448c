#include "plan/transfer_schedule.hpp"

#include <algorithm>
#include <cstddef>
#include <initializer_list>

namespace polypath {
namespace {

constexpr std::uint64_t kMaxSlots = 8;

/// A staged route on its way through the schedule.
struct StagedShare {
  int transfer = 0;
  int route = 0;
  const RouteShare* share = nullptr;
  TransferSchedule* schedule = nullptr;
  int slots = 1;
  int next = 0;                   ///< chunk
  int writer = 0;                 ///< leg 0 of the chunk that was added last
  std::vector<int> readers = {};  ///< chunk -> index of its leg 1
};

int slots_of(const RouteShare& share, const RingLimits& limits) {
  const std::uint64_t fit =
      std::max<std::uint64_t>(1, limits.bytes_of(share.route) / share.chunk_bytes);
  const auto most = share.slots == 0 ? kMaxSlots : static_cast<std::uint64_t>(share.slots);
  return static_cast<int>(std::min({static_cast<std::uint64_t>(share.chunks), fit, most}));
}

int queue_of(int route, int leg) { return 2 * route + leg; }

void reserve(TransferSchedule& schedule, const TransferPlan& transfer) {
  std::size_t staged = 0;
  for (const RouteShare& share : transfer.routes)
    if (share.route.staged()) staged += 2 * static_cast<std::size_t>(share.chunks);
  if (staged == 0) return;
  schedule.routes.reserve(transfer.routes.size());
  schedule.steps.reserve(staged + 1);  // one direct copy
  schedule.waits.reserve(staged);
}

/// Leg 0 of the next chunk.
StepIndex add_writer(StagedShare& staged) {
  const RouteShare& share = *staged.share;
  const int chunk = staged.next++;
  const std::uint64_t start = static_cast<std::uint64_t>(chunk) * share.chunk_bytes;
  Step step;
  step.queue = queue_of(staged.route, 0);
  step.link = share.route.legs[0];
  step.from.offset = share.offset + start;
  step.to = {.buffer = BufferKind::scratch,
             .owner = staged.route,
             .offset = static_cast<std::uint64_t>(chunk % staged.slots) * share.chunk_bytes};
  step.bytes = std::min(share.chunk_bytes, share.bytes - start);

  // Chunk k writes where chunk k - slots was read; one wait frees a batch of slots, because the
  // readers complete in order.
  const int batch = std::max(1, staged.slots / 2);
  std::span<const int> after;
  if (chunk >= staged.slots && (chunk - staged.slots) % batch == 0)
    after = std::span(staged.readers)
                .subspan(static_cast<std::size_t>(chunk - staged.slots + batch - 1), 1);
  staged.writer = staged.schedule->add(step, after);
  return {staged.transfer, staged.writer};
}

/// Leg 1 of the chunk that add_writer() added last.
StepIndex add_reader(StagedShare& staged) {
  const Step& writer = staged.schedule->steps[static_cast<std::size_t>(staged.writer)];
  Step step;
  step.queue = queue_of(staged.route, 1);
  step.link = staged.share->route.legs[1];
  step.from = writer.to;
  step.to = {.buffer = BufferKind::output, .offset = writer.from.offset};
  step.bytes = writer.bytes;
  staged.readers.push_back(staged.schedule->add(step, {&staged.writer, 1}));
  return {staged.transfer, staged.readers.back()};
}

/// The one copy of a direct route.
int add_direct(TransferSchedule& schedule, int route, const RouteShare& share) {
  Step step;
  step.queue = queue_of(route, 0);
  if (!share.route.legs.empty()) step.link = share.route.legs[0];
  step.from.offset = share.offset;
  step.to = {.buffer = BufferKind::output, .offset = share.offset};
  step.bytes = share.bytes;
  return schedule.add(step, {});
}

}  // namespace

MemoryId memory_of(const TransferSchedule& transfer, const Place& place) noexcept {
  switch (place.buffer) {
    case BufferKind::input: return transfer.request.src;
    case BufferKind::output: return transfer.request.dst;
    case BufferKind::scratch:
    case BufferKind::host: break;
  }
  return transfer.routes[static_cast<std::size_t>(place.owner)].via;
}

void set_hash(TransferSchedule& transfer) noexcept {
  // FNV-1a over the words.
  std::uint64_t hash = 14695981039346656037ull;
  const auto mix = [&](std::initializer_list<std::uint64_t> words) {
    for (const std::uint64_t word : words) hash = (hash ^ word) * 1099511628211ull;
  };
  const auto word = [](auto value) { return static_cast<std::uint64_t>(value); };
  for (const MemoryId memory : {transfer.request.src, transfer.request.dst})
    mix({word(memory.kind), word(memory.index)});
  mix({transfer.request.bytes});
  for (const Route& route : transfer.routes) {
    mix({word(route.kind), word(route.via.kind), word(route.via.index)});
    for (const int leg : route.legs) mix({word(leg)});
  }
  for (const Step& step : transfer.steps) {
    mix({word(step.queue), word(step.link), step.bytes, word(step.after.count)});
    for (const Place& place : {step.from, step.to}) mix({word(place.buffer), place.offset});
  }
  for (const int before : transfer.waits) mix({word(before)});
  transfer.hash = hash ^ hash >> 29;
}

GroupSchedule make_schedule(const Plan& plan, const RingLimits& limits) {
  GroupSchedule schedule;
  std::vector<std::shared_ptr<TransferSchedule>> schedules;
  std::vector<StagedShare> staged;
  for (std::size_t t = 0; t < plan.transfers.size(); ++t) {
    const TransferPlan& transfer = plan.transfers[t];
    auto& current = *schedules.emplace_back(std::make_shared<TransferSchedule>());
    current.request = transfer.request;
    reserve(current, transfer);
    const int number = static_cast<int>(t);
    for (std::size_t r = 0; r < transfer.routes.size(); ++r) {
      const RouteShare& share = transfer.routes[r];
      current.routes.push_back(share.route);
      const int route = static_cast<int>(r);
      if (share.route.staged()) {
        staged.push_back({number, route, &share, &current, slots_of(share, limits)});
      } else {
        schedule.order.push_back({number, add_direct(current, route, share)});
      }
    }
    if (transfer.routes.empty()) {
      RouteShare whole;
      whole.bytes = transfer.request.bytes;
      current.routes.push_back(whole.route);
      schedule.order.push_back({number, add_direct(current, 0, whole)});
    }
  }
  for (int round = 0;; ++round) {
    bool more = false;
    for (StagedShare& current : staged) {
      if (round >= current.share->chunks) continue;
      schedule.order.push_back(add_writer(current));
      more = true;
    }
    if (!more) break;
    for (StagedShare& current : staged)
      if (round < current.share->chunks) schedule.order.push_back(add_reader(current));
  }
  for (const auto& current : schedules) {
    set_hash(*current);
    schedule.transfers.push_back(current);
  }
  return schedule;
}

}  // namespace polypath
