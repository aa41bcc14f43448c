#include <algorithm>

#include "collectives/plan/schedule_builder.hpp"
#include "collectives/plan/schedules.hpp"

namespace polypath {
namespace {

/// Pieces of scratch and host memory alternate, so that one chunk is filled while the last is read.
constexpr std::uint64_t kAlternating = 2;
/// From this number of chunks on, a stream of copies hears of other ranks by another stream: what
/// it gains on all chunks is more than what the way there takes.
constexpr std::uint64_t kMinAside = 3;

/// Streams of a rank.
enum Queue : std::uint8_t { kOut, kUp, kSum, kOwn };

class Flat {
 public:
  Flat(const Node& node, const CollectiveRequest& request, std::uint64_t chunk_bytes, bool by_host)
      : request_(request),
        ranks_(request.ranks()),
        by_host_(by_host),
        builder_(node, request, {request.reduces() ? "reduce-scatter" : "scatter", "all-gather"}) {
    std::uint64_t largest = 0;
    for (int owner = 0; owner < ranks_; ++owner) largest = std::max(largest, slice(owner).count);
    const std::uint64_t chunk = std::max<std::uint64_t>(1, chunk_bytes / size_of(request.type));
    chunks_ = std::max<std::uint64_t>(1, (largest + chunk - 1) / chunk);
    for (int owner = 0; owner < ranks_; ++owner) {
      const ElementRange whole = slice(owner);
      for (std::uint64_t i = 0; i < chunks_; ++i) {
        ElementRange& part = ranges_.emplace_back(part_of(whole.count, chunks_, i, request.type));
        part.first += whole.first;
        chunk_ = std::max(chunk_, part.count);
      }
    }
    builder_.set_landing(chunk_);
    if (request.reduces()) {
      received_ = pieces(static_cast<std::uint64_t>(ranks_ - 1), /*host=*/false);
      if (request.op == CollectiveOp::reduce) sums_ = pieces(1, /*host=*/false);
    }
    // For each sender and receiver, since two senders may share a host memory.
    if (by_host) hosted_ = pieces(static_cast<std::uint64_t>(ranks_ * (ranks_ + 1)), true);
  }

  CollectiveSchedule make() && {
    for (std::uint64_t i = 0; i <= chunks_; ++i) {
      if (i < chunks_) first_stage(i);
      if (i > 0) second_stage(i - 1);
    }
    CollectiveSchedule schedule = std::move(builder_).finish();
    schedule.waits_aside = chunks_ >= kMinAside;
    return schedule;
  }

 private:
  /// Offsets of the pieces, [use of a chunk][which].
  using Pieces = std::vector<std::vector<std::uint64_t>>;

  Pieces pieces(std::uint64_t count, bool host) {
    Pieces pieces(kAlternating);
    for (auto& row : pieces)
      for (std::uint64_t i = 0; i < count; ++i)
        row.push_back(host ? builder_.allot_host(chunk_, false)
                           : builder_.allot_scratch(chunk_, false));
    return pieces;
  }

  [[nodiscard]] ElementRange slice(int owner) const {
    const auto index = static_cast<std::uint64_t>(owner);
    if (request_.by_parts()) return {request_.count * index, request_.count};
    return part_of(request_.count, static_cast<std::uint64_t>(ranks_), index, request_.type);
  }

  /// Chunk `i` of the owner's part.
  [[nodiscard]] const ElementRange& range(int owner, std::uint64_t i) const {
    return ranges_[static_cast<std::uint64_t>(owner) * chunks_ + i];
  }

  [[nodiscard]] int turn(int rank, int k) const { return (rank + k) % ranks_; }

  static std::uint64_t piece(const Pieces& pieces, std::uint64_t chunk, int index) {
    return pieces[chunk % kAlternating][static_cast<std::size_t>(index)];
  }

  /// A chunk from `from` of `sender` to `to` of another rank.
  void send(int stage, std::uint64_t chunk, int sender, const Place& from, const Place& to,
            std::uint64_t elements) {
    if (!by_host_) return builder_.copy(stage, kOut, from, to, elements);
    const auto between =
        builder_.near_host(sender, piece(hosted_, chunk, sender * (ranks_ + 1) + to.owner));
    builder_.copy(stage, kOut, from, between, elements);
    builder_.copy(stage, kUp, between, to, elements);
  }

  /// The same to several ranks: through host memory, down once.
  void send_all(std::uint64_t chunk, int sender, const Place& from, const std::vector<Place>& to,
                std::uint64_t elements) {
    if (!by_host_) {
      for (const Place& target : to) builder_.copy(1, kOut, from, target, elements);
      return;
    }
    const auto between =
        builder_.near_host(sender, piece(hosted_, chunk, sender * (ranks_ + 1) + ranks_));
    if (!to.empty()) builder_.copy(1, kOut, from, between, elements);
    for (const Place& target : to) builder_.copy(1, kUp, between, target, elements);
  }

  void first_stage(std::uint64_t i) {
    if (request_.op == CollectiveOp::broadcast) {
      const int root = request_.root;
      for (int k = 1; k < ranks_; ++k) {
        const int owner = turn(root, k);
        const ElementRange part = range(owner, i);
        send(0, i, root, builder_.input(root, part.first), builder_.output(owner, part.first),
             part.count);
      }
      for (int owner = 0; owner < ranks_; ++owner) keep(root, range(owner, i));
    }
    if (!request_.reduces()) return;
    for (int k = 1; k < ranks_; ++k)
      for (int rank = 0; rank < ranks_; ++rank) {
        const int owner = turn(rank, k);
        const ElementRange part = range(owner, i);
        send(0, i, rank, builder_.input(rank, part.first), received(owner, i, rank), part.count);
      }
    for (int owner = 0; owner < ranks_; ++owner) {
      const ElementRange part = range(owner, i);
      std::vector<Place> operands;
      for (int rank = 0; rank < ranks_; ++rank)
        operands.push_back(rank == owner ? builder_.input(owner, part.first)
                                         : received(owner, i, rank));
      builder_.reduce(0, kSum, owner, operands, sum_of(owner, i), part.count);
    }
  }

  /// Where the owner takes what `sender` gives.
  [[nodiscard]] Place received(int owner, std::uint64_t i, int sender) const {
    return ScheduleBuilder::scratch(owner,
                                    piece(received_, i, (sender - owner + ranks_) % ranks_ - 1));
  }

  /// Where the owner's sum goes.
  [[nodiscard]] Place sum_of(int owner, std::uint64_t i) const {
    const ElementRange part = range(owner, i);
    if (request_.op == CollectiveOp::reduce && owner != request_.root)
      return ScheduleBuilder::scratch(owner, piece(sums_, i, 0));
    if (request_.op == CollectiveOp::reduce_scatter)
      return builder_.output(owner, part.first - slice(owner).first);
    return builder_.output(owner, part.first);
  }

  /// The rank's own input, where its output wants it. Nothing when the call is in place.
  void keep(int rank, const ElementRange& part) {
    builder_.copy(1, kOwn, builder_.input(rank, part.first), builder_.output(rank, part.first),
                  part.count);
  }

  void second_stage(std::uint64_t i) {
    switch (request_.op) {
      case CollectiveOp::reduce_scatter: return;
      case CollectiveOp::allreduce:
      case CollectiveOp::broadcast: gather(i); return;
      case CollectiveOp::all_gather: gather_inputs(i); return;
      case CollectiveOp::reduce:
        for (int owner = 0; owner < ranks_; ++owner) {
          if (owner == request_.root) continue;
          const ElementRange part = range(owner, i);
          send(1, i, owner, sum_of(owner, i), builder_.output(request_.root, part.first),
               part.count);
        }
        return;
      case CollectiveOp::all_to_all: exchange(i); return;
    }
  }

  /// Owners' results to all.
  void gather(std::uint64_t i) {
    std::vector<std::vector<Place>> to(static_cast<std::size_t>(ranks_));
    for (int k = 1; k < ranks_; ++k)
      for (int owner = 0; owner < ranks_; ++owner) {
        const int rank = turn(owner, k);
        const bool has_it = request_.op == CollectiveOp::broadcast && rank == request_.root;
        if (!has_it)
          to[static_cast<std::size_t>(owner)].push_back(
              builder_.output(rank, range(owner, i).first));
      }
    for (int owner = 0; owner < ranks_; ++owner) {
      const ElementRange part = range(owner, i);
      const bool from_input = request_.op == CollectiveOp::broadcast && owner == request_.root;
      send_all(i, owner,
               from_input ? builder_.input(owner, part.first) : builder_.output(owner, part.first),
               to[static_cast<std::size_t>(owner)], part.count);
    }
  }

  void gather_inputs(std::uint64_t i) {
    for (int owner = 0; owner < ranks_; ++owner) {
      const ElementRange part = range(owner, i);
      const std::uint64_t own = part.first - slice(owner).first;
      std::vector<Place> to;
      for (int k = 1; k < ranks_; ++k) to.push_back(builder_.output(turn(owner, k), part.first));
      send_all(i, owner, builder_.input(owner, own), to, part.count);
      builder_.copy(1, kOwn, builder_.input(owner, own), builder_.output(owner, part.first),
                    part.count);
    }
  }

  void exchange(std::uint64_t i) {
    for (int k = 0; k < ranks_; ++k)
      for (int rank = 0; rank < ranks_; ++rank) {
        const int other = turn(rank, k);
        const ElementRange sent = range(other, i);
        const ElementRange taken = range(rank, i);
        if (k == 0) {
          keep(rank, sent);
        } else {
          send(1, i, rank, builder_.input(rank, sent.first), builder_.output(other, taken.first),
               sent.count);
        }
      }
  }

  const CollectiveRequest& request_;
  int ranks_;
  bool by_host_;
  ScheduleBuilder builder_;
  std::uint64_t chunks_ = 1;
  std::vector<ElementRange> ranges_;  // of each chunk of each owner
  std::uint64_t chunk_ = 0;           // elements of the largest
  Pieces received_;                   // of each rank
  Pieces sums_;
  Pieces hosted_;
};

}  // namespace

CollectiveSchedule flat_schedule(const Node& node, const CollectiveRequest& request,
                                 std::uint64_t chunk_bytes, bool by_host) {
  return Flat(node, request, chunk_bytes, by_host).make();
}

}  // namespace polypath
