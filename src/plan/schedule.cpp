#include "plan/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>

namespace polypath {
namespace {

constexpr std::uint64_t kMostSlots = 8;

/// A staged route on its way through the schedule.
struct Lane {
  int transfer = 0;
  int route = 0;
  const RouteShare* share = nullptr;
  RingShape ring = {};
  int next = 0;                   ///< chunk
  int writer = kNoCopy;           ///< leg 0 of the chunk before
  std::vector<int> readers = {};  ///< chunk -> index of its leg 1
};

RingShape shape_of(const RouteShare& share, const RingLimits& limits) {
  if (!share.route.staged()) return {};
  const std::uint64_t fit = std::max<std::uint64_t>(1, limits.of(share.route) / share.chunk_bytes);
  const auto most = share.slots == 0 ? kMostSlots : static_cast<std::uint64_t>(share.slots);
  const auto slots = std::min({static_cast<std::uint64_t>(share.chunks), fit, most});
  return {static_cast<int>(slots), share.chunk_bytes};
}

/// Leg 0 of the lane's next chunk.
void add_writer(Lane& lane, std::vector<Copy>& copies) {
  const RouteShare& share = *lane.share;
  const int chunk = lane.next++;
  const std::uint64_t start = static_cast<std::uint64_t>(chunk) * share.chunk_bytes;
  Copy copy;
  copy.transfer = lane.transfer;
  copy.route = lane.route;
  copy.offset = share.offset + start;
  copy.bytes = std::min(share.chunk_bytes, share.bytes - start);
  copy.slot = chunk % lane.ring.slots;

  // Chunk k writes where chunk k - slots was read; one wait frees a batch of slots, because the
  // readers complete in order.
  const int batch = std::max(1, lane.ring.slots / 2);
  if (chunk >= lane.ring.slots && (chunk - lane.ring.slots) % batch == 0) {
    const int freed = chunk - lane.ring.slots + batch - 1;
    copy.after = lane.readers[static_cast<std::size_t>(freed)];
    copies[static_cast<std::size_t>(copy.after)].awaited = true;
  }
  copy.awaited = true;
  lane.writer = static_cast<int>(copies.size());
  copies.push_back(copy);
}

/// Leg 1 of the chunk that add_writer() added last.
void add_reader(Lane& lane, std::vector<Copy>& copies) {
  Copy copy = copies[static_cast<std::size_t>(lane.writer)];
  copy.leg = 1;
  copy.after = lane.writer;
  copy.awaited = false;
  lane.readers.push_back(static_cast<int>(copies.size()));
  copies.push_back(copy);
}

/// The transfer's copies out of those of all, with the order of each leg written down.
std::shared_ptr<const CopyDag> make_dag(const TransferPlan& transfer, const Schedule& schedule,
                                        std::size_t index) {
  auto dag = std::make_shared<CopyDag>();
  dag->request = transfer.request;
  for (const RouteShare& share : transfer.routes) dag->routes.push_back(share.route);
  dag->rings = schedule.rings[index];
  std::vector<int> place(schedule.copies.size(), kNoCopy);                           // in the DAG
  std::vector<std::array<int, 2>> last(transfer.routes.size(), {kNoCopy, kNoCopy});  // by leg
  for (std::size_t i = 0; i < schedule.copies.size(); ++i) {
    const Copy& copy = schedule.copies[i];
    if (copy.transfer != static_cast<int>(index)) continue;
    int& before = last[static_cast<std::size_t>(copy.route)][static_cast<std::size_t>(copy.leg)];
    const int other = copy.after == kNoCopy ? kNoCopy : place[static_cast<std::size_t>(copy.after)];
    place[i] = static_cast<int>(dag->copies.size());
    dag->copies.push_back(
        {copy.route, copy.leg, copy.offset, copy.bytes, copy.slot, {before, other}});
    before = place[i];
  }
  set_hash(*dag);
  return dag;
}

}  // namespace

Schedule make_schedule(const Plan& plan, const RingLimits& limits) {
  Schedule schedule;
  std::vector<Lane> lanes;
  for (std::size_t t = 0; t < plan.transfers.size(); ++t) {
    auto& rings = schedule.rings.emplace_back();
    const auto& routes = plan.transfers[t].routes;
    for (std::size_t r = 0; r < routes.size(); ++r) {
      const RouteShare& share = routes[r];
      rings.push_back(shape_of(share, limits));
      if (share.route.staged()) {
        lanes.push_back({static_cast<int>(t), static_cast<int>(r), &share, rings.back()});
        continue;
      }
      Copy copy;
      copy.transfer = static_cast<int>(t);
      copy.route = static_cast<int>(r);
      copy.offset = share.offset;
      copy.bytes = share.bytes;
      schedule.copies.push_back(copy);
    }
  }
  for (int round = 0;; ++round) {
    bool more = false;
    for (Lane& lane : lanes) {
      if (round >= lane.share->chunks) continue;
      add_writer(lane, schedule.copies);
      more = true;
    }
    if (!more) break;
    for (Lane& lane : lanes)
      if (round < lane.share->chunks) add_reader(lane, schedule.copies);
  }
  for (std::size_t t = 0; t < plan.transfers.size(); ++t)
    schedule.dags.push_back(plan.transfers[t].native() ? nullptr
                                                       : make_dag(plan.transfers[t], schedule, t));
  return schedule;
}

std::string to_string(const Schedule& schedule) {
  std::string text;
  for (std::size_t i = 0; i < schedule.copies.size(); ++i) {
    const Copy& copy = schedule.copies[i];
    fmt::format_to(std::back_inserter(text), "{}: transfer {} route {} leg {} [{}, +{}) slot {}", i,
                   copy.transfer, copy.route, copy.leg, copy.offset, copy.bytes, copy.slot);
    if (copy.after != kNoCopy) fmt::format_to(std::back_inserter(text), " after {}", copy.after);
    text += '\n';
  }
  return text;
}

}  // namespace polypath
