#include <algorithm>
#include <numeric>

#include "collectives/plan/schedule_builder.hpp"
#include "collectives/plan/schedules.hpp"

namespace polypath {
namespace {

enum RingQueue : std::uint8_t { kRingOut, kRingSum, kRingOwn };

class Ring {
 public:
  Ring(const Node& node, const CollectiveRequest& request, const std::vector<int>& ring,
       std::uint64_t chunk_bytes)
      : request_(request),
        ring_(ring),
        builder_(node, request, {"reduce around the ring", "gather around the ring"}) {
    const std::uint64_t chunk = std::max<std::uint64_t>(1, chunk_bytes / size_of(request.type));
    const std::uint64_t loop = chunk * ring.size();
    loops_ = std::max<std::uint64_t>(1, (request.count + loop - 1) / loop);
    std::uint64_t largest = 0;
    for (std::uint64_t i = 0; i < loops_; ++i)
      for (std::size_t slice = 0; slice < ring.size(); ++slice)
        largest = std::max(largest, range(i, slice).count);
    builder_.set_landing(largest);
    const std::uint64_t rounds = ring.size() - 1;
    // In each round of every loop that is under way a rank receives one slice and sums one.
    for (std::uint64_t i = 0; i < rounds + 1; ++i) {
      for (std::uint64_t round = 0; round < rounds; ++round) {
        arrived_.push_back(builder_.allot_scratch(largest, true));
        partial_.push_back(builder_.allot_scratch(largest, true));
      }
    }
  }

  CollectiveSchedule make() && {
    const std::uint64_t rounds = ring_.size() - 1;
    // A loop does its round r in wave loop + r, the older loops first: every hop has a slice of
    // each loop that is under way.
    for (std::uint64_t wave = 0; wave < loops_ + 2 * rounds; ++wave)
      for (std::uint64_t round = 2 * rounds; round-- > 0;) {
        if (wave < round || wave - round >= loops_) continue;
        if (round < rounds) {
          reduce_round(wave - round, round);
        } else {
          gather_round(wave - round, round - rounds);
        }
      }
    CollectiveSchedule schedule = std::move(builder_).finish();
    schedule.waits_aside = true;
    return schedule;
  }

 private:
  [[nodiscard]] ElementRange range(std::uint64_t loop, std::uint64_t slice) const {
    const ElementRange whole = part_of(request_.count, loops_, loop, request_.type);
    ElementRange part = part_of(whole.count, ring_.size(), slice, request_.type);
    part.first += whole.first;
    return part;
  }

  [[nodiscard]] std::uint64_t piece(const std::vector<std::uint64_t>& pieces, std::uint64_t loop,
                                    std::uint64_t round) const {
    const std::uint64_t rounds = ring_.size() - 1;
    return pieces[loop % (rounds + 1) * rounds + round];
  }

  /// Place p of the ring sends slice p - round - 1 on, and ends with the sum of slice p.
  void reduce_round(std::uint64_t loop, std::uint64_t round) {
    const std::size_t n = ring_.size();
    for (std::size_t p = 0; p < n; ++p) {
      const std::size_t slice = (p + 2 * n - round - 1) % n;
      const ElementRange part = range(loop, slice);
      const int from = ring_[p];
      const int to = ring_[(p + 1) % n];
      const Place arrived =
          ScheduleBuilder::scratch(to, piece(arrived_, loop, round), /*partial=*/round > 0);
      const Place source =
          round == 0
              ? builder_.input(from, part.first)
              : ScheduleBuilder::scratch(from, piece(partial_, loop, round - 1), /*partial=*/true);
      builder_.copy(0, kRingOut, source, arrived, part.count);
      const bool last = round + 2 == n;
      const Place sum =
          last ? builder_.output(to, part.first)
               : ScheduleBuilder::scratch(to, piece(partial_, loop, round), /*partial=*/true);
      builder_.reduce(0, kRingSum, to, {arrived, builder_.input(to, part.first)}, sum, part.count);
    }
  }

  void gather_round(std::uint64_t loop, std::uint64_t round) {
    const std::size_t n = ring_.size();
    for (std::size_t p = 0; p < n; ++p) {
      const ElementRange part = range(loop, (p + n - round) % n);
      builder_.copy(1, kRingOut, builder_.output(ring_[p], part.first),
                    builder_.output(ring_[(p + 1) % n], part.first), part.count);
    }
  }

  const CollectiveRequest& request_;
  const std::vector<int>& ring_;
  ScheduleBuilder builder_;
  std::uint64_t loops_ = 1;
  std::vector<std::uint64_t> arrived_;  // [loop][round]
  std::vector<std::uint64_t> partial_;
};

}  // namespace

CollectiveSchedule ring_schedule(const Node& node, const CollectiveRequest& request,
                                 const std::vector<int>& ring, std::uint64_t chunk_bytes) {
  return Ring(node, request, ring, chunk_bytes).make();
}

std::vector<int> best_ring(const Node& node, const CollectiveRequest& request) {
  const auto slowest = [&](const std::vector<int>& ring) {
    double least = -1;
    for (std::size_t p = 0; p < ring.size(); ++p) {
      const auto gpu = [&](std::size_t place) {
        return MemoryId::gpu(request.gpus[static_cast<std::size_t>(ring[place % ring.size()])]);
      };
      const auto link = node.find_link(gpu(p), gpu(p + 1));
      const double gbps = link ? node.links[static_cast<std::size_t>(*link)].gbps : 0;
      if (least < 0 || gbps < least) least = gbps;
    }
    return least;
  };
  std::vector<int> ring(request.gpus.size());
  std::iota(ring.begin(), ring.end(), 0);
  std::vector<int> best = ring;
  // Rank 0 stays first; beyond eight ranks the order of ranks has to do.
  if (ring.size() <= 8 && ring.size() > 2)
    while (std::next_permutation(ring.begin() + 1, ring.end()))
      if (slowest(ring) > slowest(best)) best = ring;
  return best;
}

}  // namespace polypath
