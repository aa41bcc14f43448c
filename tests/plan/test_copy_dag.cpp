// The DAG of a transfer holds the schedule's copies of it, no more and no fewer, with every order that
// the schedule leaves to the streams written down; equal plans give equal DAGs.
#include "plan/copy_dag.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>

#include "base/units.hpp"
#include "plan/schedule.hpp"
#include "plan_inputs.hpp"

namespace polypath {
namespace {

struct Planned {
  Plan plan;
  Schedule schedule;
};

Planned planned(std::uint64_t seed) {
  Random random(seed);
  const Node node = random_node(random);
  const auto requests = random_requests(random, node);
  PlanOptions options;
  if (pick(random, 0, 1) == 0) options.chunks.chunk_bytes = kMiB << pick(random, 0, 2);
  Planned made;
  made.plan = make_plan(node, make_ladder(node, requests, options.filter), requests, options);
  made.schedule = make_schedule(made.plan, options.chunks.rings);
  return made;
}

/// A DAG with two staged routes, slots that are used again, and so every kind of dependency.
CopyDag example() {
  const Node node = mesh_node();
  const std::vector<Request> requests{{MemoryId::gpu(0), MemoryId::gpu(1), 256 * kMiB + 3}};
  PlanOptions options;
  options.filter.host = false;
  options.chunks.chunk_bytes = 2 * kMiB;
  const Plan plan = make_plan(node, make_ladder(node, requests, options.filter), requests, options);
  return *make_schedule(plan, options.chunks.rings).dags.at(0);
}

TEST(CopyDag, HoldsExactlyTheSchedulesCopies) {
  int dags = 0;
  int after_another_leg = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto [plan, schedule] = planned(seed);
    ASSERT_EQ(schedule.dags.size(), plan.transfers.size());
    for (std::size_t t = 0; t < plan.transfers.size(); ++t) {
      const TransferPlan& transfer = plan.transfers[t];
      ASSERT_EQ(schedule.dags[t] == nullptr, transfer.native());
      if (transfer.native()) continue;
      ++dags;
      const CopyDag& dag = *schedule.dags[t];
      EXPECT_EQ(dag.request, transfer.request);
      EXPECT_EQ(dag.rings, schedule.rings[t]);
      ASSERT_EQ(dag.routes.size(), transfer.routes.size());
      for (std::size_t r = 0; r < dag.routes.size(); ++r)
        EXPECT_EQ(dag.routes[r], transfer.routes[r].route);

      std::map<int, int> place;  // of the schedule's copies in the DAG
      std::map<std::pair<int, int>, int> last;
      std::size_t next = 0;
      for (std::size_t i = 0; i < schedule.copies.size(); ++i) {
        const Copy& copy = schedule.copies[i];
        if (copy.transfer != static_cast<int>(t)) continue;
        ASSERT_LT(next, dag.copies.size());
        const auto before = last.find({copy.route, copy.leg});
        const DagCopy expected{copy.route,
                               copy.leg,
                               copy.offset,
                               copy.bytes,
                               copy.slot,
                               {before == last.end() ? kNoCopy : before->second,
                                copy.after == kNoCopy ? kNoCopy : place.at(copy.after)}};
        EXPECT_EQ(dag.copies[next], expected) << "copy " << next;
        if (copy.after != kNoCopy) ++after_another_leg;
        place[static_cast<int>(i)] = last[{copy.route, copy.leg}] = static_cast<int>(next++);
      }
      EXPECT_EQ(next, dag.copies.size());
    }
  }
  EXPECT_GT(dags, 100);
  EXPECT_GT(after_another_leg, 1000);
}

TEST(CopyDag, DependsOnEarlierCopiesOnlyTheSameLegFirst) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    for (const auto& dag : planned(seed).schedule.dags) {
      if (dag == nullptr) continue;
      for (std::size_t i = 0; i < dag->copies.size(); ++i) {
        const DagCopy& copy = dag->copies[i];
        for (const int before : copy.after) {
          ASSERT_GE(before, kNoCopy);
          ASSERT_LT(before, static_cast<int>(i));
        }
        const auto leg_of = [&](int before) {
          const DagCopy& other = dag->copies[static_cast<std::size_t>(before)];
          EXPECT_EQ(other.route, copy.route);
          return other.leg;
        };
        if (copy.after[0] != kNoCopy) {
          EXPECT_EQ(leg_of(copy.after[0]), copy.leg);
        }
        if (copy.after[1] != kNoCopy) {
          EXPECT_NE(leg_of(copy.after[1]), copy.leg);
        }
        if (copy.leg == 1) {
          ASSERT_NE(copy.after[1], kNoCopy) << "it reads what leg 0 wrote";
          const DagCopy& writer = dag->copies[static_cast<std::size_t>(copy.after[1])];
          EXPECT_EQ(writer.offset, copy.offset);
          EXPECT_EQ(writer.bytes, copy.bytes);
          EXPECT_EQ(writer.slot, copy.slot);
        }
      }
    }
  }
}

TEST(CopyDag, EqualPlansHaveEqualDagsOthersDifferInTheirHash) {
  std::map<std::uint64_t, CopyDag> known;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Planned one = planned(seed);
    const Planned again = planned(seed);
    for (std::size_t t = 0; t < one.schedule.dags.size(); ++t) {
      if (one.schedule.dags[t] == nullptr) continue;
      const CopyDag& dag = *one.schedule.dags[t];
      EXPECT_NE(&dag, again.schedule.dags[t].get());
      EXPECT_EQ(dag, *again.schedule.dags[t]);
      EXPECT_EQ(dag.hash, again.schedule.dags[t]->hash);
      // Alone it is the same: a DAG does not know of the others in its group.
      Plan alone = one.plan;
      alone.transfers = {one.plan.transfers[t]};
      EXPECT_EQ(dag, *make_schedule(alone, PlanOptions{}.chunks.rings).dags.at(0));
      const auto [found, is_new] = known.emplace(dag.hash, dag);
      if (!is_new) {
        EXPECT_EQ(dag, found->second) << "the same hash";
      }
    }
  }
  EXPECT_GT(known.size(), 100u);
}

TEST(CopyDag, AnyChangeMakesItAnother) {
  const CopyDag dag = example();
  ASSERT_EQ(dag.routes.size(), 3u);
  ASSERT_GT(dag.copies.size(), 40u);
  CopyDag same = dag;
  set_hash(same);
  EXPECT_EQ(same, dag);

  using Change = std::function<void(CopyDag&)>;
  const std::map<std::string, Change> changes{
      {"source", [](CopyDag& one) { one.request.src = MemoryId::gpu(3); }},
      {"kind of source", [](CopyDag& one) { one.request.src = MemoryId::host(0); }},
      {"destination", [](CopyDag& one) { one.request.dst = MemoryId::gpu(3); }},
      {"size", [](CopyDag& one) { ++one.request.bytes; }},
      {"kind of route", [](CopyDag& one) { one.routes[1].kind = RouteKind::via_host; }},
      {"leg", [](CopyDag& one) { ++one.routes[1].legs[1]; }},
      {"order of routes", [](CopyDag& one) { std::swap(one.routes[1], one.routes[2]); }},
      {"one route fewer", [](CopyDag& one) { one.routes.pop_back(); }},
      {"slots", [](CopyDag& one) { ++one.rings[1].slots; }},
      {"bytes of a slot", [](CopyDag& one) { ++one.rings[2].slot_bytes; }},
      {"one copy fewer", [](CopyDag& one) { one.copies.pop_back(); }},
      {"one copy twice", [](CopyDag& one) { one.copies.push_back(one.copies.back()); }},
      {"order of copies", [](CopyDag& one) { std::swap(one.copies[1], one.copies[2]); }},
      {"route of a copy", [](CopyDag& one) { ++one.copies[1].route; }},
      {"leg of a copy", [](CopyDag& one) { one.copies[1].leg = 1; }},
      {"offset of a copy", [](CopyDag& one) { ++one.copies[1].offset; }},
      {"bytes of a copy", [](CopyDag& one) { --one.copies[1].bytes; }},
      {"slot of a copy", [](CopyDag& one) { ++one.copies[1].slot; }},
      {"order in the leg", [](CopyDag& one) { one.copies.back().after[0] = kNoCopy; }},
      {"order of the legs", [](CopyDag& one) { one.copies.back().after[1] = kNoCopy; }},
  };
  for (const auto& [what, change] : changes) {
    SCOPED_TRACE(what);
    CopyDag changed = dag;
    change(changed);
    EXPECT_NE(changed, dag) << "even with the same hash";
    set_hash(changed);
    EXPECT_NE(changed, dag);
    EXPECT_NE(changed.hash, dag.hash);
  }
}

}  // namespace
}  // namespace polypath
