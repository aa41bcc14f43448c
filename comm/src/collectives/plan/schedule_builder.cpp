#include "collectives/plan/schedule_builder.hpp"

#include <algorithm>
#include <utility>

namespace polypath {
namespace {

constexpr std::uint64_t kAlignment = 128;
/// One is filled, one is taken, and one is told of.
constexpr std::uint64_t kLandingSlots = 3;
/// Queues of a receiver that take what landed, one for each sender, after those of schedules.
constexpr int kTakes = 1000;
/// No link has been looked up.
constexpr int kUnknown = -1;

constexpr std::uint64_t pair_key(int rank, int queue) {
  return static_cast<std::uint64_t>(rank) << 32 | static_cast<std::uint32_t>(queue);
}

}  // namespace

ElementRange part_of(std::uint64_t elements, std::uint64_t parts, std::uint64_t index,
                     DataType type) noexcept {
  const std::uint64_t granule = kAlignment / size_of(type);
  const auto bound = [&](std::uint64_t i) {
    if (i == parts) return elements;
    const std::uint64_t even = elements / parts * i + elements % parts * i / parts;
    return std::min(elements, (even + granule - 1) / granule * granule);
  };
  const std::uint64_t first = bound(index);
  return {first, bound(index + 1) - first};
}

ScheduleBuilder::ScheduleBuilder(const Node& node, const CollectiveRequest& request,
                                 std::vector<std::string> stages)
    : node_(node),
      links_((node.gpus.size() + node.hosts.size()) * (node.gpus.size() + node.hosts.size()),
             kUnknown),
      rings_(static_cast<std::size_t>(request.ranks()), 0) {
  schedule_.request = request;
  schedule_.stages = std::move(stages);
}

Place ScheduleBuilder::input(int rank, std::uint64_t element) const {
  return {BufferKind::input, false, rank, element * size_of(schedule_.request.type)};
}

Place ScheduleBuilder::output(int rank, std::uint64_t element) const {
  return {BufferKind::output, false, rank, element * size_of(schedule_.request.type)};
}

namespace {

std::uint64_t allot(std::uint64_t& used, std::uint64_t elements, DataType type) {
  const std::uint64_t offset = used;
  const std::uint64_t bytes = elements * size_of(type);
  used += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return offset;
}

DataType type_of(const CollectiveRequest& request, bool partial) {
  return partial ? request.partial_type() : request.type;
}

}  // namespace

std::uint64_t ScheduleBuilder::allot_scratch(std::uint64_t elements, bool partial) {
  return allot(schedule_.scratch_bytes, elements, type_of(schedule_.request, partial));
}

std::uint64_t ScheduleBuilder::allot_host(std::uint64_t elements, bool partial) {
  return allot(schedule_.host_bytes, elements, type_of(schedule_.request, partial));
}

Place ScheduleBuilder::near_host(int rank, std::uint64_t offset) const {
  const int gpu = schedule_.request.gpus[static_cast<std::size_t>(rank)];
  return {BufferKind::host, false, node_.gpus[static_cast<std::size_t>(gpu)].numa, offset};
}

MemoryId ScheduleBuilder::memory_of(const Place& place) const {
  if (place.buffer == BufferKind::host) return MemoryId::host(place.owner);
  return MemoryId::gpu(schedule_.request.gpus[static_cast<std::size_t>(place.owner)]);
}

int ScheduleBuilder::link_between(MemoryId from, MemoryId to) {
  const auto index = [&](MemoryId memory) {
    return static_cast<std::size_t>(memory.index) + (memory.is_gpu() ? 0 : node_.gpus.size());
  };
  int& link = links_[index(from) * (node_.gpus.size() + node_.hosts.size()) + index(to)];
  if (link == kUnknown) link = node_.find_link(from, to).value();
  return link;
}

ScheduleBuilder::Use& ScheduleBuilder::use_of(const Place& place) {
  const bool is_input = place.buffer == BufferKind::output && !schedule_.request.by_parts();
  const auto buffer = is_input ? BufferKind::input : place.buffer;
  const std::uint64_t key = place.offset << 12 | static_cast<std::uint64_t>(place.owner) << 4 |
                            static_cast<std::uint64_t>(buffer);
  const std::size_t index = places_.at(key);
  if (index == uses_.size()) uses_.emplace_back();
  return uses_[index];
}

Place ScheduleBuilder::land(int from, int queue, int to) {
  const std::size_t index =
      senders_.at(pair_key(to, queue) | static_cast<std::uint64_t>(from) << 48);
  if (index == landings_.size()) landings_.push_back({rings_[static_cast<std::size_t>(to)]++});
  Landing& landing = landings_[index];
  if (landing.ring == slots_.size()) {
    auto& slots = slots_.emplace_back();
    for (std::uint64_t i = 0; i < kLandingSlots; ++i)
      slots.push_back(allot_scratch(landing_elements_, /*partial=*/false));
  }
  return scratch(to, slots_[landing.ring][landing.uses++ % kLandingSlots]);
}

void ScheduleBuilder::copy(int stage, int queue, const Place& from, const Place& to,
                           std::uint64_t elements) {
  if (elements == 0) return;
  if (to.buffer == BufferKind::output && from.buffer != BufferKind::host &&
      to.owner != from.owner) {
    const Place slot = land(from.owner, queue, to.owner);
    copy(stage, queue, from, slot, elements);
    copy(stage, kTakes + from.owner, slot, to, elements);
    return;
  }
  const Piece piece{from, to, elements};
  add_copy(stage, queue, {&piece, 1});
}

void ScheduleBuilder::copy_run(int stage, int queue, const std::vector<Piece>& pieces) {
  std::vector<Piece> some;
  for (const Piece& piece : pieces)
    if (piece.elements > 0) some.push_back(piece);
  if (!some.empty()) add_copy(stage, queue, some);
}

void ScheduleBuilder::add_copy(int stage, int queue, std::span<const Piece> pieces) {
  const auto& [from, to, first_elements] = pieces.front();
  Step step;
  step.rank = from.buffer == BufferKind::host ? to.owner : from.owner;
  const MemoryId source = memory_of(from);
  const MemoryId destination = memory_of(to);
  if (source != destination) step.link = link_between(source, destination);
  step.from = from;
  step.to = to;
  step.to.is_partial = from.is_partial;
  step.stage = stage;
  const std::uint64_t element_bytes = size_of(type_of(schedule_.request, from.is_partial));
  if (pieces.size() == 1) {
    step.bytes = first_elements * element_bytes;
    add(step, queue, {&from, 1}, {&to, 1}, {});
    return;
  }
  std::vector<Place> reads;
  std::vector<Place> writes;
  for (const Piece& piece : pieces) {
    step.bytes += piece.elements * element_bytes;
    reads.push_back(piece.from);
    writes.push_back(piece.to);
  }
  add(step, queue, reads, writes, {});
}

void ScheduleBuilder::reduce(int stage, int queue, int rank, const std::vector<Place>& operands,
                             const Place& to, std::uint64_t elements) {
  if (elements == 0) return;
  Step step;
  step.kind = StepKind::reduce;
  step.rank = rank;
  step.to = to;
  step.bytes = elements * size_of(type_of(schedule_.request, to.is_partial));
  step.stage = stage;
  add(step, queue, operands, {&to, 1}, operands);
}

void ScheduleBuilder::wait_for(int other, int own_queue) {
  const int queue = schedule_.steps[static_cast<std::size_t>(other)].queue;
  if (queue == own_queue) return;
  int& latest = latest_[static_cast<std::size_t>(queue)];
  if (latest < 0) waited_.push_back(queue);
  latest = std::max(latest, other);
}

void ScheduleBuilder::add(Step step, int queue, std::span<const Place> reads,
                          std::span<const Place> writes, std::span<const Place> operands) {
  const int index = static_cast<int>(schedule_.steps.size());
  step.queue = static_cast<int>(queues_.at(pair_key(step.rank, queue)));
  if (step.queue == schedule_.queues) latest_.push_back(-1);
  for (const Place& from : reads) {
    Use& use = use_of(from);
    if (use.writer >= 0) wait_for(use.writer, step.queue);
    readers_.push_back({index, use.readers});
    use.readers = static_cast<int>(readers_.size()) - 1;
  }
  for (const Place& to : writes) {
    Use& use = use_of(to);
    if (use.writer >= 0) wait_for(use.writer, step.queue);
    for (int i = use.readers; i >= 0; i = readers_[static_cast<std::size_t>(i)].before)
      if (const int reader = readers_[static_cast<std::size_t>(i)].step; reader != index)
        wait_for(reader, step.queue);
    use = {index, -1};
  }
  after_.clear();
  for (const int other : waited_)
    after_.push_back(std::exchange(latest_[static_cast<std::size_t>(other)], -1));
  waited_.clear();
  std::ranges::sort(after_);
  schedule_.add(step, after_, operands);
}

}  // namespace polypath
