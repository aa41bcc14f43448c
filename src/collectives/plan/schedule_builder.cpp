#include "collectives/plan/schedule_builder.hpp"

#include <algorithm>

namespace polypath {
namespace {

constexpr std::uint64_t kAlignment = 128;
/// One is filled, one is taken, and one is told of.
constexpr std::uint64_t kLandingSlots = 3;
/// Queues of a receiver that take what landed, one for each sender, behind those of schedules.
constexpr int kTakes = 1000;

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
    : node_(node) {
  schedule_.request = request;
  schedule_.stages = std::move(stages);
}

CollectivePlace ScheduleBuilder::input(int rank, std::uint64_t element) const {
  return {CollectiveBuffer::input, rank, element * size_of(schedule_.request.type)};
}

CollectivePlace ScheduleBuilder::output(int rank, std::uint64_t element) const {
  return {CollectiveBuffer::output, rank, element * size_of(schedule_.request.type)};
}

namespace {

std::uint64_t allot(std::uint64_t& used, std::uint64_t elements, DataType type) {
  const std::uint64_t offset = used;
  const std::uint64_t bytes = elements * size_of(type);
  used += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return offset;
}

DataType type_of(const CollectiveRequest& request, bool partial) {
  return partial ? accumulator_of(request.type) : request.type;
}

}  // namespace

std::uint64_t ScheduleBuilder::allot_scratch(std::uint64_t elements, bool partial) {
  return allot(schedule_.scratch_bytes, elements, type_of(schedule_.request, partial));
}

std::uint64_t ScheduleBuilder::allot_host(std::uint64_t elements, bool partial) {
  return allot(schedule_.host_bytes, elements, type_of(schedule_.request, partial));
}

CollectivePlace ScheduleBuilder::near_host(int rank, std::uint64_t offset) const {
  const int gpu = schedule_.request.gpus[static_cast<std::size_t>(rank)];
  return {CollectiveBuffer::host, node_.gpus[static_cast<std::size_t>(gpu)].numa, offset};
}

MemoryId ScheduleBuilder::memory_of(const CollectivePlace& place) const {
  if (place.buffer == CollectiveBuffer::host) return MemoryId::host(place.rank);
  return MemoryId::gpu(schedule_.request.gpus[static_cast<std::size_t>(place.rank)]);
}

ScheduleBuilder::Key ScheduleBuilder::key_of(const CollectivePlace& place) const {
  const bool one = place.buffer == CollectiveBuffer::output && !schedule_.request.by_parts();
  const auto buffer = one ? CollectiveBuffer::input : place.buffer;
  return {static_cast<int>(buffer), place.rank, place.offset};
}

CollectivePlace ScheduleBuilder::land(int from, int queue, int to) {
  const auto [known, is_new] = landings_.try_emplace({to, from, queue});
  Landing& landing = known->second;
  if (is_new) landing.ring = rings_[to]++;
  if (landing.ring == slots_.size()) {
    auto& slots = slots_.emplace_back();
    for (std::uint64_t i = 0; i < kLandingSlots; ++i)
      slots.push_back(allot_scratch(landing_elements_, /*partial=*/false));
  }
  return scratch(to, slots_[landing.ring][landing.uses++ % kLandingSlots]);
}

void ScheduleBuilder::copy(int stage, int queue, const Operand& from, const CollectivePlace& to,
                           std::uint64_t elements) {
  if (elements == 0) return;
  if (to.buffer == CollectiveBuffer::output && from.place.buffer != CollectiveBuffer::host &&
      to.rank != from.place.rank) {
    const CollectivePlace slot = land(from.place.rank, queue, to.rank);
    copy(stage, queue, from, slot, elements);
    copy(stage, kTakes + from.place.rank, {slot}, to, elements);
    return;
  }
  add_copy(stage, queue, from.partial, {{from.place, to, elements}});
}

void ScheduleBuilder::copy_run(int stage, int queue, const std::vector<Piece>& pieces) {
  std::vector<Piece> some;
  for (const Piece& piece : pieces)
    if (piece.elements > 0) some.push_back(piece);
  if (!some.empty()) add_copy(stage, queue, /*partial=*/false, some);
}

void ScheduleBuilder::add_copy(int stage, int queue, bool partial,
                               const std::vector<Piece>& pieces) {
  const auto& [from, to, first_elements] = pieces.front();
  CollectiveStep step;
  step.kind = CollectiveStepKind::copy;
  step.rank = from.buffer == CollectiveBuffer::host ? to.rank : from.rank;
  const MemoryId source = memory_of(from);
  const MemoryId destination = memory_of(to);
  if (source != destination) step.link = node_.find_link(source, destination).value();
  step.operands = {from};
  step.partial = {partial};
  step.to = to;
  step.to_partial = partial;
  step.stage = stage;
  std::vector<CollectivePlace> reads;
  std::vector<CollectivePlace> writes;
  for (const Piece& piece : pieces) {
    step.elements += piece.elements;
    reads.push_back(piece.from);
    writes.push_back(piece.to);
  }
  add(std::move(step), queue, reads, writes);
}

void ScheduleBuilder::reduce(int stage, int queue, int rank, const std::vector<Operand>& operands,
                             const Operand& to, std::uint64_t elements) {
  if (elements == 0) return;
  CollectiveStep step;
  step.kind = CollectiveStepKind::reduce;
  step.rank = rank;
  for (const Operand& operand : operands) {
    step.operands.push_back(operand.place);
    step.partial.push_back(operand.partial);
  }
  step.to = to.place;
  step.to_partial = to.partial;
  step.elements = elements;
  step.stage = stage;
  const std::vector<CollectivePlace> reads = step.operands;
  add(std::move(step), queue, reads, {to.place});
}

void ScheduleBuilder::add(CollectiveStep step, int queue, const std::vector<CollectivePlace>& reads,
                          const std::vector<CollectivePlace>& writes) {
  const int index = static_cast<int>(schedule_.steps.size());
  const auto [place, is_new] = queues_.try_emplace({step.rank, queue}, schedule_.queues);
  if (is_new) ++schedule_.queues;
  step.queue = place->second;

  std::map<int, int> last;  // of each queue the last step that this one waits for
  const auto wait_for = [&](int other) {
    const int of = schedule_.steps[static_cast<std::size_t>(other)].queue;
    if (of == step.queue) return;
    const auto known = last.try_emplace(of, other).first;
    known->second = std::max(known->second, other);
  };
  for (const CollectivePlace& from : reads) {
    Use& use = uses_[key_of(from)];
    if (use.writer) wait_for(*use.writer);
    use.readers.push_back(index);
  }
  for (const CollectivePlace& to : writes) {
    Use& use = uses_[key_of(to)];
    if (use.writer) wait_for(*use.writer);
    for (const int reader : use.readers)
      if (reader != index) wait_for(reader);
    use.writer = index;
    use.readers.clear();
  }
  for (const auto& [of, other] : last) step.after.push_back(other);
  std::ranges::sort(step.after);
  schedule_.steps.push_back(std::move(step));
}

}  // namespace polypath
