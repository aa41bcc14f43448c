#include "collectives/plan/collective_schedule.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iterator>

namespace polypath {
namespace {

std::string name_of(const CollectivePlace& place) {
  switch (place.buffer) {
    case CollectiveBuffer::input: return fmt::format("r{}.in+{}", place.rank, place.offset);
    case CollectiveBuffer::output: return fmt::format("r{}.out+{}", place.rank, place.offset);
    case CollectiveBuffer::scratch: return fmt::format("r{}.scratch+{}", place.rank, place.offset);
    case CollectiveBuffer::host: return fmt::format("host{}+{}", place.rank, place.offset);
  }
  return "?";
}

}  // namespace

std::uint64_t bytes_of(const CollectiveSchedule& schedule, const CollectiveStep& step,
                       bool partial) {
  const DataType type = partial ? accumulator_of(schedule.request.type) : schedule.request.type;
  return step.elements * size_of(type);
}

std::string to_string(const CollectiveSchedule& schedule) {
  std::string text;
  for (std::size_t i = 0; i < schedule.steps.size(); ++i) {
    const CollectiveStep& step = schedule.steps[i];
    std::vector<std::string> operands;
    for (std::size_t o = 0; o < step.operands.size(); ++o)
      operands.push_back((step.partial[o] ? "partial " : "") + name_of(step.operands[o]));
    const bool copy = step.kind == CollectiveStepKind::copy;
    fmt::format_to(std::back_inserter(text), "{:4} q{} r{} {}: {} {} = {}", i, step.queue,
                   step.rank, schedule.stages[static_cast<std::size_t>(step.stage)],
                   step.to_partial && !copy ? "partial" : "", name_of(step.to),
                   fmt::join(operands, copy ? "" : " + "));
    fmt::format_to(std::back_inserter(text), ", {} elements", step.elements);
    if (!step.after.empty())
      fmt::format_to(std::back_inserter(text), ", after {}", fmt::join(step.after, " "));
    text += '\n';
  }
  return text;
}

}  // namespace polypath
