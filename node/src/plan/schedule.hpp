// A schedule: the steps of a transfer (plan/transfer_schedule.hpp) or of a collective
// (collectives/plan/collective_schedule.hpp) in the order of issue, with what each must wait for. A
// plain value without addresses, streams, events and signals, which its runner has.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace polypath {

inline constexpr int kNoLink = -1;

enum class StepKind : std::uint8_t {
  copy,    ///< `bytes` from `from` to `to`, over `link`
  reduce,  ///< to = (reads[0] op reads[1]) op ..., element by element, in memory of `rank`
};

/// A buffer, without its address.
enum class BufferKind : std::uint8_t {
  input,    ///< what the caller gives, read only: the source of a transfer, a rank's send buffer
  output,   ///< the destination; a rank's receive buffer, written by that rank alone, which is its
            ///< input when the call is in place
  scratch,  ///< the ring of a transfer's route; symmetric memory of a rank
  host,     ///< pinned host memory
};

/// Where a step reads or writes.
struct Place {
  BufferKind buffer = BufferKind::input;
  bool is_partial = false;  ///< it holds partial sums, of the accumulator's type
  int owner =
      0;  ///< of a collective the rank, for `host` the index into Node::hosts; of a transfer's
          ///< scratch the route
  std::uint64_t offset = 0;  ///< bytes

  friend bool operator==(const Place&, const Place&) = default;
};

/// A part of one of the lists of a schedule.
struct ListPart {
  int first = 0;
  int count = 0;

  friend bool operator==(const ListPart&, const ListPart&) = default;
};

struct Step {
  StepKind kind = StepKind::copy;
  bool is_awaited = false;  ///< a later step waits for it
  int rank = 0;             ///< that issues it: of a copy the one that holds the source
  int queue = 0;            ///< steps of one queue run in the order of the list
  int link = kNoLink;       ///< copy: index into Node::links; kNoLink: within one memory, or
                            ///< wherever the driver sends it
  int stage = 0;            ///< of a collective: index into CollectiveSchedule::stages
  ListPart after;           ///< of Schedule::waits
  ListPart operands;        ///< reduce: of Schedule::operands
  Place from;               ///< copy
  Place to;
  std::uint64_t bytes = 0;  ///< that it writes

  friend bool operator==(const Step&, const Step&) = default;
};

struct Schedule {
  std::vector<Step> steps;
  int queues = 0;
  std::vector<Place> operands;
  std::vector<int> waits;

  /// Adds `step` at the end, and returns its index. It waits for the earlier steps `before`, of
  /// other queues than its own.
  int add(const Step& step, std::span<const int> before) {
    Step& added = steps.emplace_back(step);
    added.after = {static_cast<int>(waits.size()), static_cast<int>(before.size())};
    for (const int other : before) {
      steps[static_cast<std::size_t>(other)].is_awaited = true;
      waits.push_back(other);
    }
    queues = std::max(queues, added.queue + 1);
    return static_cast<int>(steps.size()) - 1;
  }
  /// The same for a reduction.
  int add(const Step& step, std::span<const int> before, std::span<const Place> from) {
    const int index = add(step, before);
    steps.back().operands = {static_cast<int>(operands.size()), static_cast<int>(from.size())};
    operands.insert(operands.end(), from.begin(), from.end());
    return index;
  }

  /// The steps that must have completed before it, besides those before it in its queue.
  [[nodiscard]] std::span<const int> after(const Step& step) const noexcept {
    return part(waits, step.after);
  }
  [[nodiscard]] std::span<const Place> reads(const Step& step) const noexcept {
    if (step.kind == StepKind::copy) return {&step.from, 1};
    return part(operands, step.operands);
  }

  friend bool operator==(const Schedule&, const Schedule&) = default;

 private:
  template <typename Entry>
  static std::span<const Entry> part(const std::vector<Entry>& list, ListPart which) noexcept {
    return std::span(list).subspan(static_cast<std::size_t>(which.first),
                                   static_cast<std::size_t>(which.count));
  }
};

}  // namespace polypath
