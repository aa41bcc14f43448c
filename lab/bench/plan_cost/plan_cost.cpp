// What planning costs, on this machine's CPU: the route sets of some pairs, the plan of a size from
// known route sets, and its schedule; the plan of a collective of a new size, as a rank's first
// call makes it. Usage: plan_cost NODE_FILE...
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <vector>

#include "base/units.hpp"
#include "collectives/plan/collective_plan.hpp"
#include "collectives/plan/copy_cost_table.hpp"
#include "plan/plan.hpp"
#include "plan/transfer_schedule.hpp"
#include "topology/node_file.hpp"

namespace polypath {
namespace {

constexpr int kRuns = 31;

template <typename Function>
double median_us(const Function& function) {
  std::vector<double> samples;
  for (int i = 0; i < kRuns; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    function();
    samples.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
            .count());
  }
  std::ranges::nth_element(samples, samples.begin() + kRuns / 2);
  return samples[kRuns / 2];
}

void report(const Node& node, const char* what, std::vector<Request> requests) {
  RouteSets route_sets;
  Plan plan;
  GroupSchedule schedule;
  const PlanOptions options;
  const double route_sets_us = median_us([&] { route_sets = make_route_sets(node, requests, {}); });
  for (const std::uint64_t bytes : {4 * kMiB, 64 * kMiB, 512 * kMiB, 4 * kGiB}) {
    for (Request& request : requests) request.bytes = bytes;
    const double plan_us =
        median_us([&] { plan = make_plan(node, route_sets, requests, options); });
    const double schedule_us =
        median_us([&] { schedule = make_schedule(plan, options.chunks.rings); });
    fmt::print(
        "{:14} {:10} route sets {:3} in {:8.1f} us; {:5} MiB: plan {:7.1f} us, schedule {:7.1f} us "
        "of {} copies\n",
        node.name, what, route_sets.sets.size(), route_sets_us, bytes / kMiB, plan_us, schedule_us,
        schedule.order.size());
  }
}

void report_collectives(const Node& node) {
  const int ranks = std::min(kMaxRanksPerNode, static_cast<int>(node.gpus.size()));
  CollectiveOptions options;
  options.explain = false;
  // As a communicator has it before its first call.
  std::vector<int> gpus(static_cast<std::size_t>(ranks));
  std::iota(gpus.begin(), gpus.end(), 0);
  CopyCostTable table(node, gpus);
  options.table = &table;
  table.fill_allreduce(options);
  for (const CollectiveOp op :
       {CollectiveOp::allreduce, CollectiveOp::all_gather, CollectiveOp::broadcast}) {
    for (const std::uint64_t bytes : {64 * kKiB, 4 * kMiB, 64 * kMiB, 512 * kMiB}) {
      auto request = request_of_bytes(op, DataType::float32, bytes, ranks);
      CollectivePlan plan;
      const double plan_us = median_us([&] {
        plan = plan_collective(node, request, options);
        request.count -= static_cast<std::uint64_t>(ranks);  // a new count each time
      });
      fmt::print("{:14} {:10} {} ranks {:7} KiB: plan {:7.1f} us, {}\n", node.name, to_string(op),
                 ranks, bytes / kKiB, plan_us, to_string(plan.algorithm));
    }
  }
}

}  // namespace
}  // namespace polypath

int main(int count, char** files) {
  using namespace polypath;
  for (int i = 1; i < count; ++i) {
    const Node node = read_node_file(files[i]);
    const int gpus = static_cast<int>(node.gpus.size());
    const auto pair = [](int a, int b) {
      return Request{MemoryId::gpu(a), MemoryId::gpu(b), kMiB};
    };
    report(node, "gpu to gpu", {pair(0, 1)});
    report(node, "to gpu", {{MemoryId::host(0), MemoryId::gpu(0), kMiB}});
    report(node, "both ways", {pair(0, 1), pair(1, 0)});
    std::vector<Request> ring;
    for (int gpu = 0; gpu < gpus; ++gpu) ring.push_back(pair(gpu, (gpu + 1) % gpus));
    report(node, "ring", ring);
    for (int gpu = 0; gpu < gpus; ++gpu) ring.push_back(pair((gpu + 1) % gpus, gpu));
    report(node, "ring both", ring);
    report_collectives(node);
  }
}
