// The schedule of a transfer stands alone: it holds every order that is needed, and equal plans
// give equal schedules.
#include "plan/schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "base/units.hpp"
#include "plan_inputs.hpp"

namespace polypath {
namespace {

struct Planned {
  Node node;
  Plan plan;
  Schedule schedule;
};

Planned planned(std::uint64_t seed) {
  Random random(seed);
  Planned result;
  result.node = random_node(random);
  const auto requests = random_requests(random, result.node);
  PlanOptions options;
  if (pick(random, 0, 1) == 0) options.chunks.chunk_bytes = kMiB << pick(random, 0, 2);
  result.plan = make_plan(result.node, make_route_sets(result.node, requests, options.filter),
                          requests, options);
  result.schedule = make_schedule(result.plan, options.chunks.rings);
  return result;
}

/// Two staged routes, slots that are used again, and so every kind of dependency.
TransferSchedule example() {
  const Node node = mesh_node();
  const std::vector<Request> requests{{MemoryId::gpu(0), MemoryId::gpu(1), 256 * kMiB + 3}};
  PlanOptions options;
  options.filter.host = false;
  options.chunks.chunk_bytes = 2 * kMiB;
  const Plan plan =
      make_plan(node, make_route_sets(node, requests, options.filter), requests, options);
  return *make_schedule(plan, options.chunks.rings).transfers.at(0);
}

/// All steps that have completed before step `index` starts.
std::set<int> before(const TransferSchedule& transfer, int index) {
  std::set<int> all;
  std::vector<int> todo{index};
  while (!todo.empty()) {
    const Step& step = transfer.steps[static_cast<std::size_t>(todo.back())];
    todo.pop_back();
    for (const int earlier : step.after)
      if (earlier != kNoStep && all.insert(earlier).second) todo.push_back(earlier);
  }
  return all;
}

bool overlap(const Place& a, std::uint64_t a_bytes, const Place& b, std::uint64_t b_bytes) {
  return a.buffer == b.buffer && a.offset < b.offset + b_bytes && b.offset < a.offset + a_bytes;
}

TEST(Schedule, MovesEveryByteOnceOverTheLinksOfThePlan) {
  int split = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto [node, plan, schedule] = planned(seed);
    ASSERT_EQ(schedule.transfers.size(), plan.transfers.size());
    for (std::size_t t = 0; t < plan.transfers.size(); ++t) {
      const TransferPlan& transfer = plan.transfers[t];
      const TransferSchedule& expected = *schedule.transfers[t];
      EXPECT_EQ(expected.request, transfer.request);
      EXPECT_EQ(expected.split(), !transfer.native());
      if (expected.split()) ++split;
      std::map<int, std::map<std::uint64_t, std::uint64_t>> moved;  // by link: offset, bytes
      for (const Step& step : expected.steps) {
        const RouteShare& share = transfer.routes.at(static_cast<std::size_t>(step.route));
        ASSERT_EQ(step.link, share.route.legs.at(static_cast<std::size_t>(step.leg)));
        EXPECT_EQ(step.from.buffer, step.leg == 0 ? BufferKind::source : BufferKind::ring);
        EXPECT_EQ(step.to.buffer, step.leg == 0 && share.route.staged() ? BufferKind::ring
                                                                        : BufferKind::destination);
        if (step.leg == 0 && share.route.staged()) {
          EXPECT_LE(step.to.offset + step.bytes, PlanOptions{}.chunks.rings.bytes_of(share.route));
        }
        const std::uint64_t at = step.leg == 0 ? step.from.offset : step.to.offset;
        EXPECT_TRUE(moved[step.link].emplace(at, step.bytes).second);
        if (step.leg == 1) {
          const Step& writer = expected.steps.at(static_cast<std::size_t>(step.after[1]));
          EXPECT_EQ(writer.from.offset, step.to.offset);
          EXPECT_EQ(writer.to, step.from);
          EXPECT_EQ(writer.bytes, step.bytes);
        }
      }
      for (const RouteShare& share : transfer.routes)
        for (const int link : share.route.legs) {
          std::uint64_t next = share.offset;
          for (const auto& [at, bytes] : moved[link]) {
            if (at < share.offset || at >= share.offset + share.bytes) continue;
            EXPECT_EQ(at, next);
            next = at + bytes;
          }
          EXPECT_EQ(next, share.offset + share.bytes);
        }
    }
  }
  EXPECT_GT(split, 100);
}

TEST(Schedule, OrdersWhatTouchesTheSameStagingMemory) {
  int pairs = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    for (const auto& transfer : planned(seed).schedule.transfers) {
      const std::vector<Step>& steps = transfer->steps;
      if (steps.size() > 200) continue;
      for (std::size_t i = 0; i < steps.size(); ++i) {
        const std::set<int> earlier = before(*transfer, static_cast<int>(i));
        for (std::size_t j = 0; j < i; ++j) {
          if (steps[i].route != steps[j].route) continue;
          const auto touches = [](const Step& step) { return step.leg == 0 ? step.to : step.from; };
          if (touches(steps[i]).buffer != BufferKind::ring ||
              !overlap(touches(steps[i]), steps[i].bytes, touches(steps[j]), steps[j].bytes))
            continue;
          // Two readers of a slot, or a writer and any other step.
          ++pairs;
          EXPECT_TRUE(earlier.contains(static_cast<int>(j))) << j << " and " << i;
        }
      }
    }
  }
  EXPECT_GT(pairs, 1000);
}

TEST(Schedule, StepsWaitForEarlierStepsOfTheirRoute) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    for (const auto& transfer : planned(seed).schedule.transfers) {
      std::map<std::pair<int, int>, int> last;
      std::set<int> awaited;
      for (std::size_t i = 0; i < transfer->steps.size(); ++i) {
        const Step& step = transfer->steps[i];
        const auto before = last.find({step.route, step.leg});
        EXPECT_EQ(step.after[0], before == last.end() ? kNoStep : before->second);
        last[{step.route, step.leg}] = static_cast<int>(i);
        if (step.after[1] == kNoStep) continue;
        ASSERT_LT(step.after[1], static_cast<int>(i));
        const Step& other = transfer->steps[static_cast<std::size_t>(step.after[1])];
        EXPECT_EQ(other.route, step.route);
        EXPECT_NE(other.leg, step.leg);
        EXPECT_TRUE(awaited.insert(step.after[1]).second) << "one wait a step";
      }
      for (std::size_t i = 0; i < transfer->steps.size(); ++i)
        EXPECT_EQ(transfer->steps[i].awaited, awaited.contains(static_cast<int>(i)));
    }
  }
}

TEST(Schedule, IssuesEachStepOnceDirectCopiesFirst) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Schedule schedule = planned(seed).schedule;
    std::vector<int> next(schedule.transfers.size());
    bool staged = false;
    for (const auto [transfer, step] : schedule.order) {
      const TransferSchedule& transfer_schedule =
          *schedule.transfers[static_cast<std::size_t>(transfer)];
      EXPECT_EQ(step, next[static_cast<std::size_t>(transfer)]++);
      const auto route =
          static_cast<std::size_t>(transfer_schedule.steps[static_cast<std::size_t>(step)].route);
      if (transfer_schedule.routes[route].staged()) staged = true;
      EXPECT_EQ(transfer_schedule.routes[route].staged(), staged);
    }
    for (std::size_t t = 0; t < next.size(); ++t)
      EXPECT_EQ(static_cast<std::size_t>(next[t]), schedule.transfers[t]->steps.size());
  }
}

TEST(Schedule, PlanWithoutRoutes_IsOneDriverCopy) {
  Plan plan;
  plan.transfers.push_back({{MemoryId::gpu(0), MemoryId::gpu(1), kMiB}, {}, {}});
  const Schedule schedule = make_schedule(plan, {});
  ASSERT_EQ(schedule.order.size(), 1u);
  const Step& step = schedule.transfers.at(0)->steps.at(0);
  EXPECT_EQ(step.link, kNoLink);
  EXPECT_EQ(step.bytes, kMiB);
  EXPECT_FALSE(schedule.transfers[0]->split());
}

TEST(Schedule, EqualPlans_HaveEqualSchedulesAndHashes) {
  std::map<std::uint64_t, TransferSchedule> known;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Planned first = planned(seed);
    const Planned again = planned(seed);
    for (std::size_t t = 0; t < first.schedule.transfers.size(); ++t) {
      const TransferSchedule& transfer = *first.schedule.transfers[t];
      EXPECT_NE(&transfer, again.schedule.transfers[t].get());
      EXPECT_EQ(transfer, *again.schedule.transfers[t]);
      // Alone it is the same: it does not know of the others in its group.
      Plan alone = first.plan;
      alone.transfers = {first.plan.transfers[t]};
      EXPECT_EQ(transfer, *make_schedule(alone, PlanOptions{}.chunks.rings).transfers.at(0));
      const auto [place, is_new] = known.emplace(transfer.hash, transfer);
      if (!is_new) {
        EXPECT_EQ(transfer, place->second) << "the same hash";
      }
    }
  }
  EXPECT_GT(known.size(), 100u);
}

TEST(Schedule, AnyChangeMakesItAnother) {
  const TransferSchedule schedule = example();
  ASSERT_EQ(schedule.routes.size(), 3u);
  ASSERT_GT(schedule.steps.size(), 40u);
  TransferSchedule same = schedule;
  set_hash(same);
  EXPECT_EQ(same, schedule);

  using Change = std::function<void(TransferSchedule&)>;
  const std::map<std::string, Change> changes{
      {"source", [](TransferSchedule& variant) { variant.request.src = MemoryId::gpu(3); }},
      {"kind of source",
       [](TransferSchedule& variant) { variant.request.src = MemoryId::host(0); }},
      {"destination", [](TransferSchedule& variant) { variant.request.dst = MemoryId::gpu(3); }},
      {"size", [](TransferSchedule& variant) { ++variant.request.bytes; }},
      {"kind of route",
       [](TransferSchedule& variant) { variant.routes[1].kind = RouteKind::via_host; }},
      {"leg", [](TransferSchedule& variant) { ++variant.routes[1].legs[1]; }},
      {"order of routes",
       [](TransferSchedule& variant) { std::swap(variant.routes[1], variant.routes[2]); }},
      {"one route fewer", [](TransferSchedule& variant) { variant.routes.pop_back(); }},
      {"one step fewer", [](TransferSchedule& variant) { variant.steps.pop_back(); }},
      {"one step twice",
       [](TransferSchedule& variant) { variant.steps.push_back(variant.steps.back()); }},
      {"order of steps",
       [](TransferSchedule& variant) { std::swap(variant.steps[1], variant.steps[2]); }},
      {"route of a step", [](TransferSchedule& variant) { ++variant.steps[1].route; }},
      {"leg of a step", [](TransferSchedule& variant) { variant.steps[1].leg = 1; }},
      {"link of a step", [](TransferSchedule& variant) { ++variant.steps[1].link; }},
      {"offset that is read", [](TransferSchedule& variant) { ++variant.steps[1].from.offset; }},
      {"offset that is written", [](TransferSchedule& variant) { ++variant.steps[1].to.offset; }},
      {"buffer",
       [](TransferSchedule& variant) { variant.steps[1].to.buffer = BufferKind::destination; }},
      {"bytes of a step", [](TransferSchedule& variant) { --variant.steps[1].bytes; }},
      {"order in the leg",
       [](TransferSchedule& variant) { variant.steps.back().after[0] = kNoStep; }},
      {"order of the legs",
       [](TransferSchedule& variant) { variant.steps.back().after[1] = kNoStep; }},
  };
  for (const auto& [what, change] : changes) {
    SCOPED_TRACE(what);
    TransferSchedule changed = schedule;
    change(changed);
    EXPECT_NE(changed, schedule) << "even with the same hash";
    set_hash(changed);
    EXPECT_NE(changed, schedule);
    EXPECT_NE(changed.hash, schedule.hash);
  }
}

}  // namespace
}  // namespace polypath
