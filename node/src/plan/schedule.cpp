#include "plan/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <string_view>

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
  int writer = kNoStep;           ///< leg 0 of the chunk before
  std::vector<int> readers = {};  ///< chunk -> index of its leg 1
};

int slots_of(const RouteShare& share, const RingLimits& limits) {
  const std::uint64_t fit =
      std::max<std::uint64_t>(1, limits.bytes_of(share.route) / share.chunk_bytes);
  const auto most = share.slots == 0 ? kMaxSlots : static_cast<std::uint64_t>(share.slots);
  return static_cast<int>(std::min({static_cast<std::uint64_t>(share.chunks), fit, most}));
}

int add(TransferSchedule& schedule, const Step& step) {
  schedule.steps.push_back(step);
  return static_cast<int>(schedule.steps.size()) - 1;
}

/// Leg 0 of the next chunk.
StepIndex add_writer(StagedShare& staged) {
  const RouteShare& share = *staged.share;
  const int chunk = staged.next++;
  const std::uint64_t start = static_cast<std::uint64_t>(chunk) * share.chunk_bytes;
  Step step;
  step.route = staged.route;
  step.link = share.route.legs[0];
  step.from = {BufferKind::source, share.offset + start};
  step.to = {BufferKind::ring,
             static_cast<std::uint64_t>(chunk % staged.slots) * share.chunk_bytes};
  step.bytes = std::min(share.chunk_bytes, share.bytes - start);
  step.after[0] = staged.writer;

  // Chunk k writes where chunk k - slots was read; one wait frees a batch of slots, because the
  // readers complete in order.
  const int batch = std::max(1, staged.slots / 2);
  if (chunk >= staged.slots && (chunk - staged.slots) % batch == 0) {
    const int freed = chunk - staged.slots + batch - 1;
    step.after[1] = staged.readers[static_cast<std::size_t>(freed)];
    staged.schedule->steps[static_cast<std::size_t>(step.after[1])].awaited = true;
  }
  step.awaited = true;
  staged.writer = add(*staged.schedule, step);
  return {staged.transfer, staged.writer};
}

/// Leg 1 of the chunk that add_writer() added last.
StepIndex add_reader(StagedShare& staged) {
  const Step& writer = staged.schedule->steps[static_cast<std::size_t>(staged.writer)];
  Step step;
  step.route = staged.route;
  step.leg = 1;
  step.link = staged.share->route.legs[1];
  step.from = writer.to;
  step.to = {BufferKind::destination, writer.from.offset};
  step.bytes = writer.bytes;
  step.after = {staged.readers.empty() ? kNoStep : staged.readers.back(), staged.writer};
  staged.readers.push_back(add(*staged.schedule, step));
  return {staged.transfer, staged.readers.back()};
}

/// The one copy of a direct route.
int add_direct(TransferSchedule& schedule, int route, const RouteShare& share) {
  Step step;
  step.route = route;
  if (!share.route.legs.empty()) step.link = share.route.legs[0];
  step.from = {BufferKind::source, share.offset};
  step.to = {BufferKind::destination, share.offset};
  step.bytes = share.bytes;
  return add(schedule, step);
}

std::string_view to_string(BufferKind buffer) noexcept {
  switch (buffer) {
    case BufferKind::source: return "source";
    case BufferKind::destination: return "destination";
    case BufferKind::ring: return "ring";
  }
  return "?";
}

}  // namespace

bool TransferSchedule::split() const noexcept {
  return std::ranges::any_of(routes, [](const Route& route) { return route.staged(); });
}

MemoryId memory_of(const TransferSchedule& transfer, const Step& step,
                   const Place& place) noexcept {
  switch (place.buffer) {
    case BufferKind::source: return transfer.request.src;
    case BufferKind::destination: return transfer.request.dst;
    case BufferKind::ring: break;
  }
  return transfer.routes[static_cast<std::size_t>(step.route)].via;
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
    mix({word(step.kind), word(step.route), word(step.leg), word(step.link), step.bytes,
         word(step.after[0]), word(step.after[1])});
    for (const Place& place : {step.from, step.to}) mix({word(place.buffer), place.offset});
  }
  transfer.hash = hash ^ hash >> 29;
}

Schedule make_schedule(const Plan& plan, const RingLimits& limits) {
  Schedule schedule;
  std::vector<std::shared_ptr<TransferSchedule>> schedules;
  std::vector<StagedShare> staged;
  for (std::size_t t = 0; t < plan.transfers.size(); ++t) {
    const TransferPlan& transfer = plan.transfers[t];
    auto& current = *schedules.emplace_back(std::make_shared<TransferSchedule>());
    current.request = transfer.request;
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

std::string to_string(const Schedule& schedule) {
  std::string text;
  for (const auto [transfer, index] : schedule.order) {
    const Step& step = schedule.transfers[static_cast<std::size_t>(transfer)]
                           ->steps[static_cast<std::size_t>(index)];
    fmt::format_to(std::back_inserter(text),
                   "transfer {} step {}: route {} leg {} link {}, {} {} to {} {}, {} bytes",
                   transfer, index, step.route, step.leg, step.link, to_string(step.from.buffer),
                   step.from.offset, to_string(step.to.buffer), step.to.offset, step.bytes);
    for (const int before : step.after)
      if (before != kNoStep) fmt::format_to(std::back_inserter(text), " after {}", before);
    text += '\n';
  }
  return text;
}

}  // namespace polypath
