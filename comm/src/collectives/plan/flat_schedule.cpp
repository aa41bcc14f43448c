#include <algorithm>
#include <limits>

#include "collectives/plan/schedule_builder.hpp"
#include "collectives/plan/schedules.hpp"

namespace polypath {
namespace {

/// Pieces of scratch and host memory alternate, so that one chunk is filled while the last is read.
constexpr std::uint64_t kAlternating = 2;
/// A lane's part of a slice begins at a multiple of it; bytes.
constexpr std::uint64_t kLaneAlignment = 128;
/// From this number of chunks on, the first and the last two are these parts of a whole one.
constexpr std::uint64_t kMinTapered = 6;
constexpr double kFirst = 0.5;
constexpr double kLastButOne = 0.5;
constexpr double kLast = 0.125;
/// From this number of chunks on, a stream of copies hears of other ranks by another stream: what
/// it gains on all chunks is more than what the way there takes. With several lanes: kMinTapered.
constexpr std::uint64_t kMinAside = 3;
/// What the links between ranks carry more, since their copies make one hop.
constexpr double kDirectShare = 1.08;

/// Streams of a rank; from kPeers on two for each other rank, so that it sends to all at once.
enum Queue : std::uint8_t { kOut, kUp, kSum, kOwn, kPeers };

/// How slices go: over the links between the ranks, or another way.
enum class Way : std::uint8_t { direct, host, relay };

/// The part of each owner's slice that goes one way: from `begin` to `end` of it.
struct Lane {
  Way way = Way::direct;
  int relay = 0;         ///< index into the schedule's relays
  bool is_alone = true;  ///< there is no other lane
  double begin = 0;
  double end = 1;
};

class Flat {
 public:
  /// All must outlive it. `number`: of the lane.
  Flat(ScheduleBuilder& builder, const CollectiveRequest& request, std::uint64_t chunk_bytes,
       const Lane& lane, int number)
      : request_(request),
        ranks_(request.ranks()),
        lane_(lane),
        number_(number),
        builder_(builder) {
    std::uint64_t largest = 0;
    for (int owner = 0; owner < ranks_; ++owner) largest = std::max(largest, slice(owner).count);
    const std::uint64_t chunk = std::max<std::uint64_t>(1, chunk_bytes / size_of(request.type));
    chunks_ = std::max<std::uint64_t>(1, (largest + chunk - 1) / chunk);
    for (int owner = 0; owner < ranks_; ++owner) {
      const ElementRange whole = lane_part(owner);
      for (std::uint64_t i = 0; i < chunks_; ++i) {
        ElementRange& part = ranges_.emplace_back(chunk_of(whole.count, i));
        part.first += whole.first;
        chunk_ = std::max(chunk_, part.count);
      }
    }
  }

  /// Elements of the largest chunk.
  [[nodiscard]] std::uint64_t chunk() const { return chunk_; }
  /// Takes scratch, before the first step.
  void allot() {
    if (request_.reduces()) {
      received_ = pieces(static_cast<std::uint64_t>(ranks_ - 1), /*host=*/false);
      if (request_.op == CollectiveOp::reduce) sums_ = pieces(1, /*host=*/false);
    }
    // For each sender and receiver, since two senders may share a host memory.
    if (lane_.way == Way::host)
      hosted_ = pieces(static_cast<std::uint64_t>(ranks_ * (ranks_ + 1)), true);
  }
  /// Turns to add: one more than there are chunks.
  [[nodiscard]] std::uint64_t turns() const { return chunks_ + 1; }
  void add_turn(std::uint64_t i) {
    builder_.set_lane(number_);
    if (i < chunks_) first_stage(i);
    if (i > 0) second_stage(i - 1);
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

  /// Chunk `i` of `elements`. With several lanes the first and the last ones are smaller: no link
  /// has work before the first has come, nor while the last one makes its second hop.
  [[nodiscard]] ElementRange chunk_of(std::uint64_t elements, std::uint64_t i) const {
    if (lane_.is_alone || chunks_ < kMinTapered)
      return part_of(elements, chunks_, i, request_.type);
    const auto before = [&](std::uint64_t chunk) {
      double sum = 0;
      for (std::uint64_t k = 0; k < chunk; ++k)
        sum += k == 0 ? kFirst : k + 2 == chunks_ ? kLastButOne : k + 1 == chunks_ ? kLast : 1;
      return sum;
    };
    const double all = before(chunks_);
    const std::uint64_t first = bound(elements, before(i) / all);
    return {first, (i + 1 == chunks_ ? elements : bound(elements, before(i + 1) / all)) - first};
  }
  /// Where the part from `at` on begins.
  [[nodiscard]] std::uint64_t bound(std::uint64_t elements, double at) const {
    if (at >= 1) return elements;
    const std::uint64_t granule = kLaneAlignment / size_of(request_.type);
    return static_cast<std::uint64_t>(static_cast<double>(elements) * at) / granule * granule;
  }

  /// What goes this way of the owner's slice. Lanes begin where pieces of memory do.
  [[nodiscard]] ElementRange lane_part(int owner) const {
    const ElementRange whole = slice(owner);
    const std::uint64_t first = bound(whole.count, lane_.begin);
    return {whole.first + first, bound(whole.count, lane_.end) - first};
  }

  /// Chunk `i` of the owner's part.
  [[nodiscard]] const ElementRange& range(int owner, std::uint64_t i) const {
    return ranges_[static_cast<std::uint64_t>(owner) * chunks_ + i];
  }

  [[nodiscard]] int turn(int rank, int k) const { return (rank + k) % ranks_; }

  static std::uint64_t piece(const Pieces& pieces, std::uint64_t chunk, int index) {
    return pieces[chunk % kAlternating][static_cast<std::size_t>(index)];
  }

  /// From `from` of `sender` to `to` of another rank. `slot`: which piece of host memory.
  void send(int stage, std::uint64_t chunk, int sender, const Place& from, const Place& to,
            std::uint64_t elements) {
    if (lane_.way == Way::relay)
      return builder_.copy_over(lane_.relay, stage, kPeers + 2 * to.owner,
                                kPeers + 2 * to.owner + 1, from, to, elements);
    if (lane_.way == Way::direct) {
      const int queue = lane_.is_alone ? kOut : kPeers + 2 * to.owner;
      return builder_.copy(stage, queue, from, to, elements);
    }
    const auto between =
        builder_.near_host(sender, piece(hosted_, chunk, sender * (ranks_ + 1) + to.owner));
    builder_.copy(stage, kOut, from, between, elements);
    builder_.copy(stage, kUp, between, to, elements);
  }

  /// The same to several ranks: through host memory, down once.
  void send_all(std::uint64_t chunk, int sender, const Place& from, const std::vector<Place>& to,
                std::uint64_t elements) {
    if (lane_.way != Way::host) {
      for (const Place& target : to) send(1, chunk, sender, from, target, elements);
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
      if (lane_.is_alone)
        builder_.copy(1, kOwn, builder_.input(owner, own), builder_.output(owner, part.first),
                      part.count);
      else
        keep_whole(owner, i, 0);
    }
  }

  /// As keep(), with several lanes: all of the rank's part at once, first of all.
  void keep_whole(int rank, std::uint64_t i, std::uint64_t first) {
    if (number_ == 0 && i == 0)
      builder_.copy(1, kOwn, builder_.input(rank, first), builder_.output(rank, slice(rank).first),
                    slice(rank).count);
  }

  void exchange(std::uint64_t i) {
    for (int k = 0; k < ranks_; ++k)
      for (int rank = 0; rank < ranks_; ++rank) {
        const int other = turn(rank, k);
        const ElementRange sent = range(other, i);
        const ElementRange taken = range(rank, i);
        if (k == 0 && lane_.is_alone) {
          keep(rank, sent);
        } else if (k == 0) {
          keep_whole(rank, i, slice(rank).first);
        } else {
          send(1, i, rank, builder_.input(rank, sent.first), builder_.output(other, taken.first),
               sent.count);
        }
      }
  }

  const CollectiveRequest& request_;
  int ranks_;
  Lane lane_;
  int number_;
  ScheduleBuilder& builder_;
  std::uint64_t chunks_ = 1;
  std::vector<ElementRange> ranges_;  // of each chunk of each owner
  std::uint64_t chunk_ = 0;           // elements of the largest
  Pieces received_;                   // of each rank
  Pieces sums_;
  Pieces hosted_;
};

CollectiveSchedule schedule_of(const Node& node, const CollectiveRequest& request,
                               std::uint64_t chunk_bytes, const std::vector<Lane>& lanes,
                               const std::vector<int>& relays) {
  ScheduleBuilder builder(node, request,
                          {request.reduces() ? "reduce-scatter" : "scatter", "all-gather"});
  std::vector<Flat> parts;
  std::uint64_t landing = 0;
  std::uint64_t staged = 0;
  for (const Lane& lane : lanes) {
    const Flat& part =
        parts.emplace_back(builder, request, chunk_bytes, lane, static_cast<int>(parts.size()));
    landing = std::max(landing, part.chunk());
    if (lane.way == Way::relay) staged = std::max(staged, part.chunk());
  }
  builder.set_landing(landing);
  if (!relays.empty()) builder.set_relays(relays, staged);
  for (Flat& part : parts) part.allot();
  for (std::uint64_t i = 0; i < parts.front().turns(); ++i)
    for (Flat& part : parts) part.add_turn(i);
  const std::uint64_t chunks = parts.front().turns() - 1;
  CollectiveSchedule schedule = std::move(builder).finish();
  schedule.waits_aside = chunks >= (lanes.size() == 1 ? kMinAside : kMinTapered);
  return schedule;
}

double gbps_between(const Node& node, int from, int to) {
  const auto link = node.find_link(MemoryId::gpu(from), MemoryId::gpu(to));
  if (!link) return 0;
  const Link& entry = node.links[static_cast<std::size_t>(*link)];
  return entry.type == LinkType::nvlink && entry.ports.empty() ? entry.gbps : 0;
}

/// The slowest link of a relay from and to the ranks. 0: it lacks one of its own.
double relay_gbps(const Node& node, const CollectiveRequest& request, int relay) {
  double slowest = std::numeric_limits<double>::infinity();
  for (const int gpu : request.gpus)
    slowest = std::min({slowest, gbps_between(node, gpu, relay), gbps_between(node, relay, gpu)});
  return slowest;
}

/// The slowest link between two ranks, of any type.
double rank_gbps(const Node& node, const CollectiveRequest& request) {
  double slowest = std::numeric_limits<double>::infinity();
  for (const int from : request.gpus)
    for (const int to : request.gpus) {
      if (from == to) continue;
      const auto link = node.find_link(MemoryId::gpu(from), MemoryId::gpu(to));
      slowest = std::min(slowest, link ? node.links[static_cast<std::size_t>(*link)].gbps : 0.0);
    }
  return slowest;
}

}  // namespace

CollectiveSchedule flat_schedule(const Node& node, const CollectiveRequest& request,
                                 std::uint64_t chunk_bytes, bool by_host) {
  return schedule_of(node, request, chunk_bytes, {{.way = by_host ? Way::host : Way::direct}}, {});
}

std::vector<int> usable_relays(const Node& node, const CollectiveRequest& request) {
  std::vector<int> relays;
  for (const int gpu : request.relays)
    if (relay_gbps(node, request, gpu) > 0) relays.push_back(gpu);
  return relays;
}

std::string why_no_relays(const Node& node, const CollectiveRequest& request) {
  if (request.relays.empty()) return "no GPU is idle that all ranks may use";
  if (!usable_relays(node, request).empty()) return {};
  const bool is_switched = std::ranges::any_of(
      node.links, [](const Link& link) { return link.type == LinkType::nvswitch; });
  return is_switched ? "over an NVSwitch the ranks' own ports decide: a GPU between adds nothing"
                     : "no idle GPU has links of its own with all ranks";
}

std::vector<RelayShare> relay_shares(const Node& node, const CollectiveRequest& request) {
  // A rank's link with a relay carries what it exchanges with all others, one between ranks only
  // theirs.
  std::vector<RelayShare> shares;
  double all = kDirectShare * rank_gbps(node, request);
  for (const int gpu : usable_relays(node, request)) {
    shares.push_back({gpu, relay_gbps(node, request, gpu) / (request.ranks() - 1), 0});
    all += shares.back().gbps;
  }
  for (RelayShare& entry : shares) entry.share = entry.gbps / all;
  return shares;
}

double relay_gain(const Node& node, const CollectiveRequest& request) {
  const double direct = rank_gbps(node, request);
  double all = direct;
  for (const RelayShare& entry : relay_shares(node, request)) all += entry.gbps;
  return direct > 0 ? all / direct : 1;
}

CollectiveSchedule relayed_schedule(const Node& node, const CollectiveRequest& request,
                                    std::uint64_t chunk_bytes) {
  const std::vector<RelayShare> shares = relay_shares(node, request);
  std::vector<int> relays;
  std::vector<Lane> lanes;
  double begin = 1;
  for (const RelayShare& entry : shares) begin -= entry.share;
  lanes.push_back({.way = Way::direct, .is_alone = false, .begin = 0, .end = begin});
  for (const RelayShare& entry : shares) {
    lanes.push_back({.way = Way::relay,
                     .relay = static_cast<int>(relays.size()),
                     .is_alone = false,
                     .begin = begin,
                     .end = relays.size() + 1 == shares.size() ? 1 : begin + entry.share});
    begin += entry.share;
    relays.push_back(entry.gpu);
  }
  return schedule_of(node, request, chunk_bytes, lanes, relays);
}

}  // namespace polypath
