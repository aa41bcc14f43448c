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

/// A place, and the one by which dependencies know what lies there.
struct Spot {
  // NOLINTNEXTLINE(google-explicit-constructor): what always begins there is known by it
  Spot(const Place& at) : place(at), known_as(at) {}
  Spot(const Place& at, const Place& name) : place(at), known_as(name) {}

  Place place;
  Place known_as;
};

/// What a copy moves: elements of the request's type.
struct Piece {
  Spot from;
  Spot to;
  std::uint64_t elements = 0;
};

/// Steps must be added so that each comes after all that it depends on. Dependencies go by where a
/// piece begins, so all steps must use a buffer in the same pieces. Where they do not, pieces have
/// names (part_of_slot()). Input and output of a rank count as one buffer, since a call may be in
/// place.
///
/// No rank addresses another rank's output, which may be any memory: what is copied there *lands*
/// in a slot of the receiver's scratch, and the receiver takes it from there.
class ScheduleBuilder {
 public:
  ScheduleBuilder(const Node& node, const CollectiveRequest& request,
                  std::vector<std::string> stages);
  /// The most elements that a copy to another rank's output moves; before the first of them.
  void set_landing(std::uint64_t elements) { landing_elements_ = elements; }
  /// GPUs that are no ranks; before the first copy over one of them. `elements`: the most that
  /// a copy moves.
  void set_relays(std::vector<int> gpus, std::uint64_t elements);
  /// What is added from now on has queues of its own: those of another lane.
  void set_lane(int lane) noexcept { lane_ = lane; }
  /// Part `number` of those that a slot of memory is filled with, `element` elements after its
  /// beginning. The next use of the slot may divide it otherwise, or leave a part out. So what
  /// reads or writes the whole slot must name all its parts, empty ones too.
  [[nodiscard]] Spot part_of_slot(const Place& slot, std::uint64_t element, int number) const;

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
  void copy(int stage, int queue, const Spot& from, const Spot& to, std::uint64_t elements);
  /// To memory of another rank that others may write, over the GPU of this index among the relays:
  /// a copy there by `queue`, and one from there by `onward`.
  void copy_over(int relay, int stage, int queue, int onward, const Spot& from, const Spot& to,
                 std::uint64_t elements);
  /// One copy of several pieces that lie one after another on both sides, of which it waits for
  /// each. Neither side is another rank's memory.
  void copy_run(int stage, int queue, const std::vector<Piece>& pieces);
  /// The next slot at `receiver` for what `sender` sends by several queues, in parts.
  [[nodiscard]] Place landing_slot(int sender, int receiver) { return land(sender, 0, receiver); }
  /// The receiver takes what landed there, at once. `pieces`: one of each part, one after another;
  /// they may be empty.
  void take(int stage, int sender, const Place& slot, std::span<const Piece> pieces);
  void reduce(int stage, int queue, int rank, const std::vector<Place>& operands, const Place& to,
              std::uint64_t elements);
  /// reduce() where dependencies know pieces: `reads` those of operands, `writes` those of `to`.
  void reduce_pieces(int stage, int queue, int rank, const std::vector<Place>& operands,
                     const Place& to, std::uint64_t elements, std::span<const Place> reads,
                     std::span<const Place> writes);

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
  /// Whether it is another rank's output, which only that rank writes.
  static bool lands(const Place& from, const Place& to);
  /// The next slot at `to` for what `from` sends by `queue`.
  Place land(int from, int queue, int to);
  /// The queue by which a receiver takes what one sender sends.
  static int take_queue(int sender);
  [[nodiscard]] int link_between(MemoryId from, MemoryId to);
  Use& use_of(const Place& place);
  Step copy_step(int stage, std::span<const Piece> pieces);
  void add_copy(int stage, int queue, std::span<const Piece> pieces);
  /// `reads`, `writes`: the pieces that it touches, as they are known; `operands`: of a reduction.
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
  int lane_ = 0;
  std::vector<std::uint64_t> staging_;       // slots, the same on all relays
  std::vector<std::uint64_t> staging_uses_;  // by relay_owner()
  DenseIndex senders_;                       // receiver, sender, queue -> index into landings_
  std::vector<Landing> landings_;
  std::vector<std::size_t> rings_;                 // of each receiver
  std::vector<std::vector<std::uint64_t>> slots_;  // [ring]: the same on all ranks
};

}  // namespace polypath
