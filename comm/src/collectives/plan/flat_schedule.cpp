#include <algorithm>
#include <limits>

#include "base/units.hpp"
#include "collectives/plan/schedule_builder.hpp"
#include "collectives/plan/schedules.hpp"

namespace polypath {
namespace {

/// A lane's part of a slice begins at a multiple of it; bytes.
constexpr std::uint64_t kLaneAlignment = 128;
/// From this number of chunks on, the last two are these parts of a whole one.
constexpr std::uint64_t kMinTapered = 6;
constexpr double kLastButOne = 0.5;
constexpr double kLast = 0.125;
/// From this number of chunks on, a stream of copies hears of other ranks by another stream: what
/// it gains on all chunks is more than what the way there takes. With several lanes: kMinTapered.
constexpr std::uint64_t kMinAside = 3;

/// Streams of a rank; from kPeers on two for each other rank, so that it sends to all at once.
enum Queue : std::uint8_t { kOut, kUp, kSum, kOwn, kPeers };

/// How slices go: over the links between the ranks, or another way.
enum class Way : std::uint8_t { direct, host, relay };

/// The part of each chunk that goes one way: from `begin` to `end` of it.
struct Lane {
  Way way = Way::direct;
  int relay = 0;  ///< index into the schedule's relays
  double begin = 0;
  double end = 1;
};

class Flat {
 public:
  /// All must outlive it.
  Flat(ScheduleBuilder& builder, const CollectiveRequest& request, std::uint64_t chunk_bytes,
       const std::vector<Lane>& lanes)
      : request_(request), ranks_(request.ranks()), lanes_(lanes), builder_(builder) {
    std::uint64_t largest = 0;
    for (int owner = 0; owner < ranks_; ++owner) largest = std::max(largest, slice(owner).count);
    const std::uint64_t chunk = std::max<std::uint64_t>(1, chunk_bytes / size_of(request.type));
    chunks_ = std::max<std::uint64_t>(1, (largest + chunk - 1) / chunk);
    for (int owner = 0; owner < ranks_; ++owner) {
      const ElementRange whole = slice(owner);
      for (std::uint64_t i = 0; i < chunks_; ++i) {
        ElementRange& part = ranges_.emplace_back(chunk_of(whole.count, i));
        part.first += whole.first;
        chunk_ = std::max(chunk_, part.count);
      }
    }
  }

  /// Elements of the largest chunk.
  [[nodiscard]] std::uint64_t chunk() const { return chunk_; }
  /// ... and of what a relay takes of one.
  [[nodiscard]] std::uint64_t relayed() const {
    std::uint64_t most = 0;
    for (const ElementRange& range : ranges_)
      for (const Lane& lane : lanes_)
        if (lane.way == Way::relay) most = std::max(most, part_of_chunk(range.count, lane).count);
    return most;
  }
  /// Takes scratch, before the first step.
  void allot() {
    if (request_.reduces()) {
      received_ = pieces(static_cast<std::uint64_t>(ranks_ - 1), /*host=*/false);
      if (request_.op == CollectiveOp::reduce) sums_ = pieces(1, /*host=*/false);
    }
    // For each sender and receiver, since two senders may share a host memory.
    if (goes_by(Way::host))
      hosted_ = pieces(static_cast<std::uint64_t>(ranks_ * (ranks_ + 1)), true);
  }
  [[nodiscard]] std::uint64_t chunks() const { return chunks_; }
  /// Turns to add: more than there are chunks.
  [[nodiscard]] std::uint64_t turns() const { return chunks_ + lag(); }
  void add_turn(std::uint64_t i) {
    if (i < chunks_) first_stage(i);
    if (i >= lag()) second_stage(i - lag());
  }

 private:
  /// Offsets of the pieces, [use of a chunk][which].
  using Pieces = std::vector<std::vector<std::uint64_t>>;

  /// Whether all of it goes that way.
  [[nodiscard]] bool goes_by(Way way) const { return is_alone() && lanes_.front().way == way; }
  [[nodiscard]] bool is_alone() const { return lanes_.size() == 1; }
  /// Turns by which the second stage follows the first. A sum over lanes waits for the second hop
  /// of its chunk: meanwhile the first hop of the next one goes.
  [[nodiscard]] std::uint64_t lag() const { return is_alone() ? 1 : 2; }
  /// Pieces of scratch and host memory take turns, so that one chunk is filled while others are
  /// read.
  [[nodiscard]] std::uint64_t slots() const { return lag() + 1; }

  Pieces pieces(std::uint64_t count, bool host) {
    Pieces pieces(slots());
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

  /// Chunk `i` of `elements`. With several lanes the last ones are smaller: first hops have no work
  /// while the last one makes its second hop.
  [[nodiscard]] ElementRange chunk_of(std::uint64_t elements, std::uint64_t i) const {
    if (is_alone() || chunks_ < kMinTapered) return part_of(elements, chunks_, i, request_.type);
    const auto before = [&](std::uint64_t chunk) {
      double sum = 0;
      for (std::uint64_t k = 0; k < chunk; ++k)
        sum += k + 2 == chunks_ ? kLastButOne : k + 1 == chunks_ ? kLast : 1;
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

  /// What goes by a lane of a chunk. Lanes begin where pieces of memory do.
  [[nodiscard]] ElementRange part_of_chunk(std::uint64_t elements, const Lane& lane) const {
    const std::uint64_t first = bound(elements, lane.begin);
    return {first, bound(elements, lane.end) - first};
  }
  /// What goes by lane `number` of a chunk of `elements` at `place`.
  [[nodiscard]] Spot part_at(const Place& place, std::uint64_t elements, std::size_t number) const {
    const std::uint64_t first = part_of_chunk(elements, lanes_[number]).first;
    if (place.buffer == BufferKind::scratch)
      return builder_.part_of_slot(place, first, static_cast<int>(number));
    Place part = place;
    part.offset += first * size_of(request_.type);
    return part;
  }

  /// Chunk `i` of the owner's part.
  [[nodiscard]] const ElementRange& range(int owner, std::uint64_t i) const {
    return ranges_[static_cast<std::uint64_t>(owner) * chunks_ + i];
  }

  [[nodiscard]] int turn(int rank, int k) const { return (rank + k) % ranks_; }

  [[nodiscard]] std::uint64_t piece(const Pieces& pieces, std::uint64_t chunk, int index) const {
    return pieces[chunk % slots()][static_cast<std::size_t>(index)];
  }

  /// A chunk from `from` of `sender` to `to` of another rank.
  void send(int stage, std::uint64_t chunk, int sender, const Place& from, const Place& to,
            std::uint64_t elements) {
    if (!is_alone()) return send_by_lanes(stage, sender, from, to, elements);
    if (goes_by(Way::direct)) return builder_.copy(stage, kOut, from, to, elements);
    const auto between =
        builder_.near_host(sender, piece(hosted_, chunk, sender * (ranks_ + 1) + to.owner));
    builder_.copy(stage, kOut, from, between, elements);
    builder_.copy(stage, kUp, between, to, elements);
  }

  /// All lanes fill one place, so that its owner waits for all at once, and does one thing with it.
  void send_by_lanes(int stage, int sender, const Place& from, const Place& to,
                     std::uint64_t elements) {
    const bool lands = to.buffer == BufferKind::output;
    const Place slot = lands ? builder_.landing_slot(sender, to.owner) : to;
    const int queue = kPeers + 2 * to.owner;
    std::vector<Piece> landed;
    for (std::size_t number = 0; number < lanes_.size(); ++number) {
      const Lane& lane = lanes_[number];
      const std::uint64_t count = part_of_chunk(elements, lane).count;
      const Spot taken = part_at(from, elements, number);
      const Spot into = part_at(slot, elements, number);
      builder_.set_lane(static_cast<int>(number));
      if (lane.way == Way::relay)
        builder_.copy_over(lane.relay, stage, queue, queue + 1, taken, into, count);
      else
        builder_.copy(stage, queue, taken, into, count);
      landed.push_back({into, part_at(to, elements, number), count});
    }
    builder_.set_lane(0);
    if (lands) builder_.take(stage, sender, slot, landed);
  }

  void reduce(int owner, const std::vector<Place>& operands, const Place& to,
              std::uint64_t elements) {
    std::vector<Place> reads;
    std::vector<Place> writes;
    const auto add_names = [&](std::vector<Place>& names, const Place& place) {
      for (std::size_t number = 0; number < lanes_.size(); ++number)
        if (place.buffer == BufferKind::scratch ||
            part_of_chunk(elements, lanes_[number]).count > 0)
          names.push_back(part_at(place, elements, number).known_as);
    };
    for (const Place& operand : operands) add_names(reads, operand);
    add_names(writes, to);
    builder_.reduce_pieces(0, kSum, owner, operands, to, elements, reads, writes);
  }

  /// The same to several ranks: through host memory, down once.
  void send_all(std::uint64_t chunk, int sender, const Place& from, const std::vector<Place>& to,
                std::uint64_t elements) {
    if (!goes_by(Way::host)) {
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
      reduce(owner, operands, sum_of(owner, i), part.count);
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
      if (is_alone())
        builder_.copy(1, kOwn, builder_.input(owner, own), builder_.output(owner, part.first),
                      part.count);
      else
        keep_whole(owner, i, 0);
    }
  }

  /// As keep(), with several lanes: all of the rank's part at once, first of all.
  void keep_whole(int rank, std::uint64_t i, std::uint64_t first) {
    if (i == 0)
      builder_.copy(1, kOwn, builder_.input(rank, first), builder_.output(rank, slice(rank).first),
                    slice(rank).count);
  }

  void exchange(std::uint64_t i) {
    for (int k = 0; k < ranks_; ++k)
      for (int rank = 0; rank < ranks_; ++rank) {
        const int other = turn(rank, k);
        const ElementRange sent = range(other, i);
        const ElementRange taken = range(rank, i);
        if (k == 0 && is_alone()) {
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
  const std::vector<Lane>& lanes_;
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
  Flat flat(builder, request, chunk_bytes, lanes);
  builder.set_landing(flat.chunk());
  if (!relays.empty()) builder.set_relays(relays, flat.relayed());
  flat.allot();
  for (std::uint64_t i = 0; i < flat.turns(); ++i) flat.add_turn(i);
  const std::uint64_t chunks = flat.chunks();
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

/// The bytes of the largest slice.
std::uint64_t slice_bytes(const CollectiveRequest& request) {
  if (request.by_parts()) return request.count * size_of(request.type);
  return part_of(request.count, static_cast<std::uint64_t>(request.ranks()), 0, request.type)
             .count *
         size_of(request.type);
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

// In chunks of a slice of S bytes, of which a lane has the part s, its links of g GB/s take
//   direct   stages (S s / g + chunks (gap + value))
//   relay    stages (S s / g + chunks gap) + S s / g / chunks
// until all is there. Between copies of one queue there is a gap, a direct one is told of between
// them, and the last chunk makes a second hop over a relay. The shares are those with which all
// lanes take equally long.
std::vector<RelayShare> relay_shares(const Node& node, const CollectiveRequest& request,
                                     std::uint64_t chunk_bytes) {
  const std::uint64_t chunk = std::max<std::uint64_t>(1, chunk_bytes);
  const std::uint64_t slice = slice_bytes(request);
  const auto chunks = static_cast<double>(std::max<std::uint64_t>(1, (slice + chunk - 1) / chunk));
  const double hops = 1 + 1 / (chunks * (request.by_parts() ? 1 : 2));
  const double direct_gbps = rank_gbps(node, request);
  std::vector<RelayShare> shares;
  if (slice == 0) return shares;
  double gbps = direct_gbps;
  for (const int gpu : usable_relays(node, request)) {
    shares.push_back({gpu, relay_rate(node, request, gpu), 0});
    gbps += shares.back().gbps / hops;
  }
  // Without the gaps that all lanes have. Values count where a message is large.
  const auto bytes = static_cast<double>(slice);
  const double plain_us = bytes / (gbps * kBytesPerGbpsUs);
  const double value_us = std::min(chunks * node.costs.event_us, plain_us / 4);
  const double us = plain_us + value_us * direct_gbps / gbps;
  for (RelayShare& entry : shares) entry.share = us * entry.gbps / hops * kBytesPerGbpsUs / bytes;
  return shares;
}

double relay_rate(const Node& node, const CollectiveRequest& request, int relay) {
  return relay_gbps(node, request, relay) / (request.ranks() - 1);
}

double relay_gain(const Node& node, const CollectiveRequest& request) {
  const double direct = rank_gbps(node, request);
  double all = direct;
  for (const int gpu : usable_relays(node, request)) all += relay_rate(node, request, gpu);
  return direct > 0 ? all / direct : 1;
}

CollectiveSchedule relayed_schedule(const Node& node, const CollectiveRequest& request,
                                    std::uint64_t chunk_bytes) {
  const std::vector<RelayShare> shares = relay_shares(node, request, chunk_bytes);
  std::vector<int> relays;
  std::vector<Lane> lanes;
  double begin = 0;
  // First what makes two hops.
  for (const RelayShare& entry : shares) {
    lanes.push_back({.way = Way::relay,
                     .relay = static_cast<int>(relays.size()),
                     .begin = begin,
                     .end = std::min(1.0, begin + entry.share)});
    begin = lanes.back().end;
    relays.push_back(entry.gpu);
  }
  if (rank_gbps(node, request) > 0 || lanes.empty())
    lanes.push_back({.way = Way::direct, .begin = begin, .end = 1});
  else
    lanes.back().end = 1;
  return schedule_of(node, request, chunk_bytes, lanes, relays);
}

}  // namespace polypath
