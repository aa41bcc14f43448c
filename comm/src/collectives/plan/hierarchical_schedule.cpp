#include <algorithm>
#include <map>

#include "collectives/plan/schedule_builder.hpp"
#include "collectives/plan/schedules.hpp"

namespace polypath {
namespace {

enum Stage : std::uint8_t { kReduce, kExchange, kBroadcast };

/// Every stage of a rank has streams of its own: a chunk's broadcast does not hold back the next
/// chunk's reduction over the same link.
int queue_of(Stage stage, int to_rank) { return 3 * (to_rank + 1) + stage; }
constexpr int kSums = -1;
constexpr int kKept = -2;

/// Chunks of a lane that are under way at a leader: one is gathered, one summed, one passed on.
constexpr int kSlots = 3;

class Hierarchical {
 public:
  Hierarchical(const Node& node, const CollectiveRequest& request,
               const std::vector<std::vector<int>>& islands, int lanes, std::uint64_t chunk_bytes)
      : request_(request),
        islands_(islands),
        lanes_(static_cast<std::uint64_t>(lanes)),
        builder_(node, request, {"reduce inside", "exchange between", "broadcast inside"}) {
    std::uint64_t largest = 0;
    for (std::size_t island = 0; island < islands.size(); ++island)
      for (std::size_t place = 0; place < islands[island].size(); ++place)
        homes_[islands[island][place]] = {island, place};
    for (std::uint64_t lane = 0; lane < lanes_; ++lane)
      largest = std::max(largest, of_lane(lane).count);
    const std::uint64_t chunk = std::max<std::uint64_t>(1, chunk_bytes / size_of(request.type));
    chunks_ = std::max<std::uint64_t>(1, (largest + chunk - 1) / chunk);
    for (std::uint64_t lane = 0; lane < lanes_; ++lane) {
      const ElementRange whole = of_lane(lane);
      for (std::uint64_t i = 0; i < chunks_; ++i) {
        ElementRange& part = ranges_.emplace_back(part_of(whole.count, chunks_, i, request.type));
        part.first += whole.first;
        chunk_ = std::max(chunk_, part.count);
      }
    }
    builder_.set_landing(chunk_);
    if (request.reduces()) allot_slots();
  }

  CollectiveSchedule make() && {
    // Chunk i does its step s in wave i + s; the older chunks first, whose steps free what the
    // newer ones use.
    const std::uint64_t steps = steps_of_chunk();
    for (std::uint64_t wave = 0; wave < chunks_ + steps; ++wave) {
      for (std::uint64_t step = steps; step-- > 0;) {
        if (wave < step || wave - step >= chunks_) continue;
        for (std::uint64_t lane = 0; lane < lanes_; ++lane) do_step(step, lane, wave - step);
      }
    }
    CollectiveSchedule schedule = std::move(builder_).finish();
    schedule.waits_aside = true;
    return schedule;
  }

 private:
  [[nodiscard]] std::uint64_t steps_of_chunk() const {
    if (!request_.reduces()) return 2;
    return (request_.by_parts() ? 1 : 2) * islands_.size() + 1;
  }

  struct Slot {
    std::vector<std::uint64_t> received;  // of each member but the leader, and of later islands
    std::uint64_t arrived = 0;            // sum of the islands before
    std::uint64_t partial = 0;            // that sum with this island's
    std::uint64_t node = 0;               // as a tree: of this island alone
  };
  struct Home {
    std::size_t island = 0;
    std::size_t place = 0;  // there
  };

  void allot_slots() {
    std::size_t members = 0;
    std::uint64_t least = islands_.front().size();
    for (const auto& island : islands_) {
      members = std::max(members, island.size());
      least = std::min<std::uint64_t>(least, island.size());
    }
    const std::size_t received =
        (request_.by_parts() ? static_cast<std::size_t>(request_.ranks()) : members) - 1;
    // Where no rank leads two lanes, they share the offsets.
    for (std::uint64_t lane = 0; lane < (lanes_ <= least ? 1 : lanes_); ++lane) {
      auto& slots = slots_.emplace_back();
      for (int i = 0; i < kSlots; ++i) {
        Slot& slot = slots.emplace_back();
        for (std::size_t rank = 0; rank < received; ++rank)
          slot.received.push_back(builder_.allot_scratch(chunk_, false));
        slot.arrived = builder_.allot_scratch(chunk_, true);
        slot.partial = builder_.allot_scratch(chunk_, true);
        if (request_.needs_tree()) slot.node = builder_.allot_scratch(chunk_, true);
      }
    }
  }

  /// For operations by parts the slice of a rank, its owner.
  [[nodiscard]] ElementRange of_lane(std::uint64_t lane) const {
    if (request_.by_parts()) return {request_.count * lane, request_.count};
    return part_of(request_.count, lanes_, lane, request_.type);
  }

  [[nodiscard]] const ElementRange& range(std::uint64_t lane, std::uint64_t i) const {
    return ranges_[lane * chunks_ + i];
  }

  [[nodiscard]] const Home& home(std::uint64_t lane) const {
    return homes_.at(static_cast<int>(lane));
  }

  /// In its own island the owner of a slice leads.
  [[nodiscard]] int leader(std::size_t island, std::uint64_t lane) const {
    const std::uint64_t place = request_.by_parts() ? home(lane).place : lane;
    return islands_[island][place % islands_[island].size()];
  }

  [[nodiscard]] const Slot& slot(std::uint64_t lane, std::uint64_t i) const {
    return slots_[lane % slots_.size()][i % kSlots];
  }

  /// With n islands, island k gathers in step k, sums and passes on in step k + 1, gets the result
  /// in step 2 n - 1 - k, unless it is the last, which makes it, and broadcasts it in step 2 n - k.
  void do_step(std::uint64_t step, std::uint64_t lane, std::uint64_t i) {
    if (!request_.reduces()) {
      step == 0 ? give(lane, i) : pass_on(lane, i);
      return;
    }
    const std::uint64_t islands = islands_.size();
    const std::uint64_t summing = last_of_sum(lane, i) + 1;
    if (step < summing) gather(step, lane, i);
    if (step >= 1 && step <= summing) sum(step - 1, lane, i);
    if (request_.by_parts()) return;
    if (step > islands && step < 2 * islands) pass_back(2 * islands - 1 - step, lane, i);
    if (step > islands) broadcast(2 * islands - step, lane, i);
  }

  /// Members of the island give to their leader.
  void gather(std::size_t island, std::uint64_t lane, std::uint64_t i) {
    const int to = leader(island, lane);
    const ElementRange part = range(lane, i);
    std::size_t place = 0;
    for (const int rank : islands_[island]) {
      if (rank == to) continue;
      builder_.copy(kReduce, queue_of(kReduce, to), builder_.input(rank, part.first),
                    ScheduleBuilder::scratch(to, slot(lane, i).received[place++]), part.count);
    }
    if (island != last_of_sum(lane, i)) return;
    for (const int rank : behind(island))
      builder_.copy(kExchange, queue_of(kExchange, to), builder_.input(rank, part.first),
                    ScheduleBuilder::scratch(to, slot(lane, i).received[place++]), part.count);
  }

  /// The island whose leader makes the result. Of a reduce-scatter the sum of a slice whose owner
  /// is not of the last island could go on to the last one and back, or the ranks after give
  /// theirs as it is, which keeps the order as well: one loads the links across in both directions,
  /// the other one twice. In turn they load them alike.
  [[nodiscard]] std::size_t last_of_sum(std::uint64_t lane, std::uint64_t i) const {
    const std::size_t last = islands_.size() - 1;
    return request_.by_parts() && i % 2 == 1 ? std::min(last, home(lane).island) : last;
  }

  /// Ranks of the islands after this one.
  [[nodiscard]] std::vector<int> behind(std::size_t island) const {
    std::vector<int> ranks;
    for (std::size_t other = island + 1; other < islands_.size(); ++other)
      ranks.insert(ranks.end(), islands_[other].begin(), islands_[other].end());
    return ranks;
  }

  /// The leader adds its island's, in the order of ranks, to what arrived, and passes it on.
  void sum(std::size_t island, std::uint64_t lane, std::uint64_t i) {
    const int at = leader(island, lane);
    const ElementRange part = range(lane, i);
    std::vector<Place> operands;
    if (island > 0) operands.push_back(ScheduleBuilder::scratch(at, slot(lane, i).arrived, true));
    std::size_t place = 0;
    for (const int rank : islands_[island])
      operands.push_back(rank == at
                             ? builder_.input(at, part.first)
                             : ScheduleBuilder::scratch(at, slot(lane, i).received[place++]));
    if (island == last_of_sum(lane, i)) {
      for (std::size_t later = behind(island).size(); later > 0; --later)
        operands.push_back(ScheduleBuilder::scratch(at, slot(lane, i).received[place++]));
      if (island > 0 && request_.needs_tree()) operands = halves_of_tree(at, operands, lane, i);
      finish_sum(at, operands, lane, i);
      return;
    }
    const Place partial = ScheduleBuilder::scratch(at, slot(lane, i).partial, true);
    builder_.reduce(island == 0 ? kReduce : kExchange, kSums, at, operands, partial, part.count);
    const int next = leader(island + 1, lane);
    builder_.copy(kExchange, queue_of(kExchange, next), partial,
                  ScheduleBuilder::scratch(next, slot(lane, i).arrived, true), part.count);
  }

  /// The second of two islands: its sum is a node of the tree by itself, which is added to that of
  /// the first.
  std::vector<Place> halves_of_tree(int at, const std::vector<Place>& operands, std::uint64_t lane,
                                    std::uint64_t i) {
    if (operands.size() == 2) return operands;
    const Place node = ScheduleBuilder::scratch(at, slot(lane, i).node, true);
    builder_.reduce(kExchange, kSums, at, {operands.begin() + 1, operands.end()}, node,
                    range(lane, i).count);
    return {operands.front(), node};
  }

  void finish_sum(int at, const std::vector<Place>& operands, std::uint64_t lane, std::uint64_t i) {
    const ElementRange part = range(lane, i);
    if (!request_.by_parts()) {
      builder_.reduce(kExchange, kSums, at, operands, builder_.output(at, part.first), part.count);
      return;
    }
    const int owner = static_cast<int>(lane);
    const Place result = builder_.output(owner, part.first - of_lane(lane).first);
    const Place sum = at == owner ? result : ScheduleBuilder::scratch(at, slot(lane, i).partial);
    builder_.reduce(kExchange, kSums, at, operands, sum, part.count);
    if (at != owner) builder_.copy(kExchange, queue_of(kExchange, owner), sum, result, part.count);
  }

  /// The result from the leader of the island after to this island's.
  void pass_back(std::size_t island, std::uint64_t lane, std::uint64_t i) {
    const int from = leader(island + 1, lane);
    const int to = leader(island, lane);
    const std::uint64_t first = range(lane, i).first;
    builder_.copy(kExchange, queue_of(kExchange, to), builder_.output(from, first),
                  builder_.output(to, first), range(lane, i).count);
  }

  void broadcast(std::size_t island, std::uint64_t lane, std::uint64_t i) {
    const int from = leader(island, lane);
    const std::uint64_t first = range(lane, i).first;
    for (const int rank : islands_[island])
      if (rank != from)
        builder_.copy(kBroadcast, queue_of(kBroadcast, rank), builder_.output(from, first),
                      builder_.output(rank, first), range(lane, i).count);
  }

  // ---- All-gather: a slice goes to each island once ---------------------------------------------

  /// The owner gives to its island, and to a leader in each other one.
  void give(std::uint64_t lane, std::uint64_t i) {
    const int owner = static_cast<int>(lane);
    const ElementRange part = range(lane, i);
    const Place own = builder_.input(owner, part.first - of_lane(lane).first);
    for (std::size_t island = 0; island < islands_.size(); ++island) {
      if (island == home(lane).island) continue;
      const int to = leader(island, lane);
      builder_.copy(kExchange, queue_of(kExchange, to), own, builder_.output(to, part.first),
                    part.count);
    }
    for (const int rank : islands_[home(lane).island])
      if (rank != owner)
        builder_.copy(kBroadcast, queue_of(kBroadcast, rank), own,
                      builder_.output(rank, part.first), part.count);
    builder_.copy(kBroadcast, kKept, own, builder_.output(owner, part.first), part.count);
  }

  void pass_on(std::uint64_t lane, std::uint64_t i) {
    for (std::size_t island = 0; island < islands_.size(); ++island)
      if (island != home(lane).island) broadcast(island, lane, i);
  }

  const CollectiveRequest& request_;
  const std::vector<std::vector<int>>& islands_;
  std::uint64_t lanes_;
  ScheduleBuilder builder_;
  std::map<int, Home> homes_;  // of ranks
  std::uint64_t chunks_ = 1;
  std::vector<ElementRange> ranges_;      // of each chunk of each lane
  std::uint64_t chunk_ = 0;               // elements of the largest
  std::vector<std::vector<Slot>> slots_;  // [lane]
};

}  // namespace

CollectiveSchedule hierarchical_schedule(const Node& node, const CollectiveRequest& request,
                                         const std::vector<std::vector<int>>& islands, int lanes,
                                         std::uint64_t chunk_bytes) {
  return Hierarchical(node, request, islands, lanes, chunk_bytes).make();
}

}  // namespace polypath
