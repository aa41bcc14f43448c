// The schedule of a transfer stands alone: it holds every order that is needed, and equal plans
// give equal schedules.
#include "plan/transfer_schedule.hpp"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/units.hpp"
#include "plan_inputs.hpp"
#include "schedule_order.hpp"

namespace polypath {
namespace {

struct Planned {
  Node node;
  Plan plan;
  GroupSchedule schedule;
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
std::set<int> before(const Schedule& schedule, int index) {
  std::set<int> all;
  std::vector<int> todo{index};
  const auto add = [&](int earlier) {
    if (all.insert(earlier).second) todo.push_back(earlier);
  };
  while (!todo.empty()) {
    const int next = todo.back();
    todo.pop_back();
    const Step& step = schedule.steps[static_cast<std::size_t>(next)];
    for (const int earlier : schedule.after(step)) add(earlier);
    for (int i = next - 1; i >= 0; --i)
      if (schedule.steps[static_cast<std::size_t>(i)].queue == step.queue) {
        add(i);
        break;
      }
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
        const RouteShare& share = transfer.routes.at(route_of(step));
        const std::size_t leg = leg_of(step);
        ASSERT_EQ(step.link, share.route.legs.at(leg));
        EXPECT_EQ(step.from.buffer, leg == 0 ? BufferKind::input : BufferKind::scratch);
        EXPECT_EQ(step.to.buffer,
                  leg == 0 && share.route.staged() ? BufferKind::scratch : BufferKind::output);
        if (leg == 0 && share.route.staged()) {
          EXPECT_LE(step.to.offset + step.bytes, PlanOptions{}.chunks.rings.bytes_of(share.route));
        }
        const std::uint64_t at = leg == 0 ? step.from.offset : step.to.offset;
        EXPECT_TRUE(moved[step.link].emplace(at, step.bytes).second);
        if (leg == 1) {
          ASSERT_EQ(step.after.count, 1);
          const Step& writer =
              expected.steps.at(static_cast<std::size_t>(expected.after(step).front()));
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
          if (route_of(steps[i]) != route_of(steps[j])) continue;
          const auto touches = [](const Step& step) {
            return leg_of(step) == 0 ? step.to : step.from;
          };
          if (touches(steps[i]).buffer != BufferKind::scratch ||
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
      ASSERT_NO_FATAL_FAILURE(expect_ordered(*transfer));
      std::set<int> awaited;
      for (const Step& step : transfer->steps)
        for (const int other : transfer->after(step)) {
          EXPECT_EQ(route_of(transfer->steps[static_cast<std::size_t>(other)]), route_of(step));
          EXPECT_TRUE(awaited.insert(other).second) << "one wait a step";
        }
    }
  }
}

TEST(Schedule, IssuesEachStepOnceDirectCopiesFirst) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const GroupSchedule schedule = planned(seed).schedule;
    std::vector<int> next(schedule.transfers.size());
    bool staged = false;
    for (const auto [transfer, step] : schedule.order) {
      const TransferSchedule& transfer_schedule =
          *schedule.transfers[static_cast<std::size_t>(transfer)];
      EXPECT_EQ(step, next[static_cast<std::size_t>(transfer)]++);
      const auto route = route_of(transfer_schedule.steps[static_cast<std::size_t>(step)]);
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
  const GroupSchedule schedule = make_schedule(plan, {});
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
      {"queue of a step", [](TransferSchedule& variant) { ++variant.steps[1].queue; }},
      {"link of a step", [](TransferSchedule& variant) { ++variant.steps[1].link; }},
      {"offset that is read", [](TransferSchedule& variant) { ++variant.steps[1].from.offset; }},
      {"offset that is written", [](TransferSchedule& variant) { ++variant.steps[1].to.offset; }},
      {"buffer",
       [](TransferSchedule& variant) { variant.steps[1].to.buffer = BufferKind::output; }},
      {"bytes of a step", [](TransferSchedule& variant) { --variant.steps[1].bytes; }},
      {"wait of a step", [](TransferSchedule& variant) { variant.steps.back().after.count = 0; }},
      {"what it waits for", [](TransferSchedule& variant) { --variant.waits.back(); }},
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

// ---- on memory ----------------------------------------------------------------------------------

enum class Fault : std::uint8_t {
  none,
  no_wait_for_chunk,  ///< leg 1 does not wait for its chunk
  no_wait_for_slot,   ///< leg 0 does not wait for the readers of what it writes
  no_order_in_leg,    ///< the chunks of a leg pass each other
  one_slot,           ///< all chunks use the first slot of their ring
  step_left_out,
  step_twice,
  wrong_offset,   ///< a copy ends where another one begins
  unequal_bytes,  ///< a byte of a chunk goes missing on its way
};

/// A few KiB over random routes, in chunks of some bytes through rings of a few slots. A ring holds a
/// chunk, as the planner sees to.
Plan small_plan(Random& random, RingLimits& limits) {
  const Node node = random_node(random);
  Plan plan;
  TransferPlan& transfer = plan.transfers.emplace_back();
  transfer.request = {MemoryId::gpu(0), MemoryId::gpu(1), 0};
  limits.gpu = limits.host = static_cast<std::uint64_t>(pick(random, 200, 700));
  for (const Route& route : find_routes(node, transfer.request.src, transfer.request.dst, {})) {
    if (!transfer.routes.empty() && random() % 3 == 0) continue;
    RouteShare share;
    share.route = route;
    share.offset = transfer.request.bytes;
    share.bytes = static_cast<std::uint64_t>(pick(random, 1, 2000));
    share.chunk_bytes =
        route.staged() ? static_cast<std::uint64_t>(pick(random, 20, 200)) : share.bytes;
    share.chunks = static_cast<int>((share.bytes + share.chunk_bytes - 1) / share.chunk_bytes);
    share.slots = pick(random, 0, 5);
    transfer.request.bytes += share.bytes;
    transfer.routes.push_back(share);
  }
  return plan;
}

/// Does `change` to a random step that `which` takes, if there is one.
void change_one(Random& random, Schedule& schedule, const std::function<bool(const Step&)>& which,
                const std::function<void(Step&)>& change) {
  std::vector<std::size_t> fitting;
  for (std::size_t i = 0; i < schedule.steps.size(); ++i)
    if (which(schedule.steps[i])) fitting.push_back(i);
  if (!fitting.empty()) change(schedule.steps[fitting[random() % fitting.size()]]);
}

void plant(Fault fault, Random& random, Schedule& schedule) {
  const auto any = [](const Step&) { return true; };
  const auto waits = [](std::size_t leg) {
    return [leg](const Step& step) { return leg_of(step) == leg && step.after.count > 0; };
  };
  const auto forget = [](Step& step) { step.after.count = 0; };
  switch (fault) {
    case Fault::none: break;
    case Fault::no_wait_for_chunk: change_one(random, schedule, waits(1), forget); break;
    case Fault::no_wait_for_slot: change_one(random, schedule, waits(0), forget); break;
    case Fault::no_order_in_leg:
      for (Step& step : schedule.steps)
        if (leg_of(step) == 0) step.queue = schedule.queues++;
      break;
    case Fault::one_slot:
      for (Step& step : schedule.steps)
        for (Place* const place : {&step.from, &step.to})
          if (place->buffer == BufferKind::scratch) place->offset = 0;
      break;
    case Fault::step_left_out:
      change_one(random, schedule, any, [](Step& step) { step.bytes = 0; });
      break;
    case Fault::step_twice: {
      const Step step = schedule.steps[random() % schedule.steps.size()];
      schedule.steps.push_back(step);
      break;
    }
    case Fault::wrong_offset:
      change_one(random, schedule, any, [](Step& step) { step.to.offset += step.bytes; });
      break;
    case Fault::unequal_bytes:
      change_one(random, schedule, any, [](Step& step) { --step.bytes; });
      break;
  }
}

/// Runs the steps in a random order on memory of this program. Whether each byte arrives where it
/// should and is written once, and no step leaves its buffer.
bool is_moved(std::uint64_t seed, Fault fault) {
  Random random(seed);
  RingLimits limits;
  const Plan plan = small_plan(random, limits);
  TransferSchedule schedule = *make_schedule(plan, limits).transfers.front();
  plant(fault, random, schedule);

  using Bytes = std::vector<std::uint16_t>;  // wider than a byte: no value twice
  Bytes source(schedule.request.bytes);
  for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::uint16_t>(i + 1);
  Bytes destination(source.size(), 0);
  std::vector<Bytes> rings(schedule.routes.size(), Bytes(limits.gpu, 0));
  std::vector<int> written(destination.size(), 0);
  const auto buffer_of = [&](const Place& place) -> Bytes& {
    if (place.buffer == BufferKind::scratch) return rings[static_cast<std::size_t>(place.owner)];
    return place.buffer == BufferKind::input ? source : destination;
  };
  bool is_inside = true;
  const std::size_t done = run_in_any_order(schedule, random, [&](const Step& step) {
    const Bytes& from = buffer_of(step.from);
    Bytes& to = buffer_of(step.to);
    if (step.from.offset + step.bytes > from.size() || step.to.offset + step.bytes > to.size()) {
      is_inside = false;
      return;
    }
    for (std::uint64_t i = 0; i < step.bytes; ++i) {
      to[step.to.offset + i] = from[step.from.offset + i];
      if (step.to.buffer == BufferKind::output) ++written[step.to.offset + i];
    }
  });
  return is_inside && done == schedule.steps.size() && destination == source &&
         std::ranges::all_of(written, [](int times) { return times == 1; });
}

TEST(Schedule, InAnyOrder_MovesEveryByteOnce) {
  for (std::uint64_t seed = 0; seed < 400; ++seed)
    ASSERT_TRUE(is_moved(seed, Fault::none)) << "seed " << seed;
}

class ScheduleMutants : public testing::TestWithParam<std::pair<Fault, const char*>> {};

TEST_P(ScheduleMutants, MakesRunsFail) {
  int failures = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed)
    failures += is_moved(seed, GetParam().first) ? 0 : 1;
  EXPECT_GE(failures, 20);
}

INSTANTIATE_TEST_SUITE_P(All, ScheduleMutants,
                         testing::Values(std::pair(Fault::no_wait_for_chunk, "NoWaitForChunk"),
                                         std::pair(Fault::no_wait_for_slot, "NoWaitForSlot"),
                                         std::pair(Fault::no_order_in_leg, "NoOrderInLeg"),
                                         std::pair(Fault::one_slot, "OneSlot"),
                                         std::pair(Fault::step_left_out, "StepLeftOut"),
                                         std::pair(Fault::step_twice, "StepTwice"),
                                         std::pair(Fault::wrong_offset, "WrongOffset"),
                                         std::pair(Fault::unequal_bytes, "UnequalBytes")),
                         [](const auto& param_info) {
                           return std::string(param_info.param.second);
                         });

/// What expect_ordered() finds, of schedules that are each wrong in one way.
TEST(ScheduleOrder, FindsCyclesAndStrayWaits) {
  const auto finds = [](const std::function<void(TransferSchedule&)>& change) {
    TransferSchedule schedule = example();
    change(schedule);
    testing::TestPartResultArray results;
    const testing::ScopedFakeTestPartResultReporter reporter(
        testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &results);
    expect_ordered(schedule);
    return results.size() > 0;
  };
  EXPECT_FALSE(finds([](TransferSchedule&) {}));
  EXPECT_TRUE(finds([](TransferSchedule& wrong) {
    wrong.waits[0] = static_cast<int>(wrong.steps.size()) - 1;  // a cycle
  }));
  EXPECT_TRUE(finds([](TransferSchedule& wrong) { wrong.waits[0] = -1; }));
  EXPECT_TRUE(finds([](TransferSchedule& wrong) {  // of its own queue
    wrong.waits.back() = static_cast<int>(wrong.steps.size()) - 3;
    wrong.steps[wrong.steps.size() - 3].queue = wrong.steps.back().queue;
  }));
  EXPECT_TRUE(finds([](TransferSchedule& wrong) { ++wrong.queues; }));
  EXPECT_TRUE(finds([](TransferSchedule& wrong) { wrong.steps[0].is_awaited = true; }));
}

}  // namespace
}  // namespace polypath
