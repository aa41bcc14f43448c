// Writes down a CollectiveSchedule step by step, and finds what each step must wait for: the steps
// that wrote what it reads, and those that read or wrote what it writes.
#pragma once

#include <span>

#include "base/dense_index.hpp"
#include "collectives/plan/collective_schedule.hpp"

namespace polypath {

/// Part `index` of `elements` in `parts` nearly equal ones: [first, first + count). Inner bounds
/// lie at multiples of 128 bytes, so that parts stay aligned; the last parts may be empty.
struct ElementRange {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};
ElementRange part_of(std::uint64_t elements, std::uint64_t parts, std::uint64_t index,
                     DataType type) noexcept;

/// What a copy moves: elements of the request's type.
struct Piece {
  Place from;
  Place to;
  std::uint64_t elements = 0;
};

/// Steps must be added so that each comes after all that it depends on. A buffer must be used
/// in the same pieces by all steps: dependencies go by where a piece begins. Input and output of a
/// rank count as one buffer, since a call may be in place.
///
/// No rank addresses another rank's output, which may be any memory: what is copied there *lands*
/// in a slot of the receiver's scratch, and the receiver takes it from there.
class ScheduleBuilder {
 public:
  ScheduleBuilder(const Node& node, const CollectiveRequest& request,
                  std::vector<std::string> stages);
  /// The most elements that a copy to another rank's output moves; before the first of them.
  void set_landing(std::uint64_t elements) { landing_elements_ = elements; }

  [[nodiscard]] Place input(int rank, std::uint64_t element) const;
  [[nodiscard]] Place output(int rank, std::uint64_t element) const;
  /// A new piece of scratch on every rank (of host memory: in each), of `elements` elements.
  std::uint64_t allot_scratch(std::uint64_t elements, bool partial);
  std::uint64_t allot_host(std::uint64_t elements, bool partial);
  [[nodiscard]] static Place scratch(int rank, std::uint64_t offset, bool partial = false) {
    return {BufferKind::scratch, partial, rank, offset};
  }
  /// The near host memory of the rank.
  [[nodiscard]] Place near_host(int rank, std::uint64_t offset) const;

  /// What `queue` stands for: steps of one (rank, queue) run in order.
  void copy(int stage, int queue, const Place& from, const Place& to, std::uint64_t elements);
  /// One copy of several pieces that lie one after another on both sides, of which it waits for
  /// each. Neither side is another rank's memory.
  void copy_run(int stage, int queue, const std::vector<Piece>& pieces);
  void reduce(int stage, int queue, int rank, const std::vector<Place>& operands, const Place& to,
              std::uint64_t elements);

  [[nodiscard]] CollectiveSchedule finish() && { return std::move(schedule_); }

 private:
  /// The uses of a piece of a buffer: steps, or -1.
  struct Use {
    int writer = -1;
    int readers = -1;  // since: the latest, an index into readers_
  };
  struct Reader {
    int step = 0;
    int before = -1;  // the reader before it, an index into readers_
  };

  /// What lands at one rank from one queue of another: slots in turn.
  struct Landing {
    std::size_t ring = 0;  // of the receiver's
    std::uint64_t uses = 0;
  };

  [[nodiscard]] MemoryId memory_of(const Place& place) const;
  /// The next slot at `to` for what `from` sends by `queue`.
  Place land(int from, int queue, int to);
  [[nodiscard]] int link_between(MemoryId from, MemoryId to);
  Use& use_of(const Place& place);
  void add_copy(int stage, int queue, std::span<const Piece> pieces);
  /// `reads`, `writes`: the pieces that it touches; `operands`: of a reduction.
  void add(Step step, int queue, std::span<const Place> reads, std::span<const Place> writes,
           std::span<const Place> operands);
  /// The step that is added next waits for `other`, of another queue than its own.
  void wait_for(int other, int own_queue);

  const Node& node_;
  CollectiveSchedule schedule_;
  DenseIndex queues_;        // (rank, queue) -> index
  std::vector<int> latest_;  // of each queue: the latest step that the next one waits for, or -1
  std::vector<int> waited_;  // queues of which it waits for one
  std::vector<int> after_;   // what it waits for
  DenseIndex places_;        // buffer, rank, offset -> index into uses_
  std::vector<Use> uses_;
  std::vector<Reader> readers_;
  std::vector<int> links_;  // between memories, once it was looked up; else kUnknown
  std::uint64_t landing_elements_ = 0;
  DenseIndex senders_;  // receiver, sender, queue -> index into landings_
  std::vector<Landing> landings_;
  std::vector<std::size_t> rings_;                 // of each receiver
  std::vector<std::vector<std::uint64_t>> slots_;  // [ring]: the same on all ranks
};

}  // namespace polypath
