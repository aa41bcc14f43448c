#include "plan/plan_maker.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <tuple>
#include <utility>

#include "base/units.hpp"
#include "plan/pair_class.hpp"

namespace polypath {
namespace {

/// How much later than the direct copy the first staged one begins on an idle stream: one message
/// of 16 MiB between two H200 lost 4 us where the plan promised a gain of 1 us.
constexpr double kIdleDelayUs = 5;
/// By how much later than a native one the first copy of a split transfer is issued, in a program
/// that does other things between its transfers: single MPI messages of 64 MiB, whose plan promised
/// 12 us, took 16 us longer than native ones (2 x H200). On a busy stream it delays nothing.
constexpr double kIssueDelayUs = 16;

/// Proportions to the largest of unequal sizes: 1024 over powers of the square root of two.
constexpr std::array<std::uint64_t, 13> kProportions{1024, 724, 512, 362, 256, 181, 128,
                                                     91,   64,  45,  32,  23,  16};

std::uint64_t proportion(std::uint64_t bytes, std::uint64_t largest) {
  const double part = 1024.0 * static_cast<double>(bytes) / static_cast<double>(largest);
  for (std::size_t i = 0; i + 1 < kProportions.size(); ++i)
    // Nearest in the logarithm.
    if (part * part >= static_cast<double>(kProportions[i] * kProportions[i + 1]))
      return kProportions[i];
  return kProportions.back();
}

bool may_be_tuned(const PlanOptions& options) {
  RouteFilter all;
  all.ranks = options.filter.ranks;
  return options.filter == all && options.max_routes == 0 && options.chunks.chunk_bytes == 0 &&
         options.chunks.chunks == 0;
}

std::optional<ExecutorKind> only(ExecutorSetting choice) {
  switch (choice) {
    case ExecutorSetting::automatic: return std::nullopt;
    case ExecutorSetting::stream: return ExecutorKind::stream;
    case ExecutorSetting::graph: return ExecutorKind::graph;
  }
  return std::nullopt;
}

/// Both directions of one pair, of one size.
bool opposite(const std::vector<Request>& requests) {
  return requests.size() == 2 && requests[0].src == requests[1].dst &&
         requests[0].dst == requests[1].src && requests[0].bytes == requests[1].bytes;
}

/// The transfers of `key` and those next to them, as large as the first, in one order for all
/// callers: ties break by it.
std::vector<Request> together(const PlanKey& key) {
  std::vector<Request> all = key.requests;
  for (Request other : key.concurrent) {
    other.bytes = key.requests.front().bytes;
    all.push_back(other);
  }
  std::ranges::stable_sort(all, [](const Request& a, const Request& b) {
    return std::tie(a.src, a.dst) < std::tie(b.src, b.dst);
  });
  return all;
}

}  // namespace

bool pays_under_contention(const Plan& plan) noexcept {
  constexpr double kMinUs = 32;
  const double gain_us = plan.native_us - plan.predicted_us;
  return gain_us >= kMinUs || gain_us >= plan.native_us / 10;
}

std::uint64_t memory_bit(const Node& node, MemoryId memory) noexcept {
  const std::size_t index =
      static_cast<std::size_t>(memory.index) + (memory.is_gpu() ? 0 : node.gpus.size());
  return index < 64 ? std::uint64_t{1} << index : 0;
}

PlanMaker::PlanMaker(const PlanInputs& inputs, RouteSetsFunction route_sets_of)
    : inputs_(inputs), route_sets_of_(std::move(route_sets_of)) {}

PlanKey PlanMaker::route_sets_key(const PlanKey& key) {
  PlanKey route_sets{key.concurrent.empty() ? key.requests : together(key), key.without};
  std::uint64_t largest = 1;
  for (const Request& request : route_sets.requests) largest = std::max(largest, request.bytes);
  for (Request& request : route_sets.requests) request.bytes = proportion(request.bytes, largest);
  return route_sets;
}

std::shared_ptr<const RouteSets> PlanMaker::make_route_sets_of(
    const PlanKey& route_sets_key) const {
  RouteFilter filter = inputs_.options.filter;
  for (const MemoryId memory : inputs_.node.memories())
    if ((route_sets_key.without & memory_bit(inputs_.node, memory)) != 0)
      filter.without.push_back(memory);
  return std::make_shared<const RouteSets>(
      make_route_sets(inputs_.node, route_sets_key.requests, filter));
}

bool PlanMaker::tunable(const PlanKey& key) const {
  return key.without == 0 && !inputs_.tuned.empty() && may_be_tuned(inputs_.options);
}

bool PlanMaker::has_variants(const PlanKey& key) const {
  return key.requests.size() == 1 && tunable(key);
}

std::shared_ptr<PreparedPlan> PlanMaker::make(const PlanKey& key) const {
  auto plan = make_main(key);
  if (!has_variants(key)) return plan;
  if (key.concurrent.empty()) {
    plan->in_window = tuned_plan(key, Pattern::window, only(inputs_.executor));
    if (plan->tuned && !plan->plan.native()) plan->on_idle_stream = on_idle_stream(key, *plan);
  } else if (const auto alone = make({key.requests, key.without});
             alone->on_idle_stream != nullptr && alone->on_idle_stream->plan.native()) {
    // What is not worth issuing alone on an idle stream is not worth it next to others.
    plan->on_idle_stream = alone->on_idle_stream;
  }
  return plan;
}

std::shared_ptr<PreparedPlan> PlanMaker::make_main(const PlanKey& key) const {
  auto plan = key.concurrent.empty() ? make_alone(key) : make_concurrent(key);
  if (!key.concurrent.empty() || key.requests.size() != 1) return plan;
  plan->in_sequence = in_sequence(key);
  const double gain_us = plan->plan.native_us - plan->plan.predicted_us;
  const bool is_measured = inputs_.node.costs.staged_fixed_us > 0;
  if (is_measured && !plan->tuned && !plan->plan.native() && gain_us < kIssueDelayUs) {
    auto on_idle = native(key);
    on_idle->provisional = false;
    plan->on_idle_stream = std::move(on_idle);
  }
  return plan;
}

std::shared_ptr<PreparedPlan> PlanMaker::in_sequence(const PlanKey& key) const {
  if (only(inputs_.executor) == ExecutorKind::graph) return nullptr;
  PlanOptions options = inputs_.options;
  options.in_sequence = true;
  Plan plan = make_plan(inputs_.node, *route_sets_of_(route_sets_key(key)), key.requests, options);
  return plan.native() ? nullptr : prepared(std::move(plan), ExecutorKind::stream);
}

std::shared_ptr<PreparedPlan> PlanMaker::make_alone(const PlanKey& key) const {
  const auto executor = only(inputs_.executor);
  std::shared_ptr<PreparedPlan> plan;
  if (tunable(key)) {
    if (key.requests.size() == 1) {
      plan = tuned_plan(key, Pattern::one_way, executor);
    } else if (opposite(key.requests)) {
      plan = tuned_plan(key, Pattern::both_ways, executor);
    }
  }
  return plan != nullptr ? plan : modelled(key, executor.value_or(ExecutorKind::stream));
}

std::shared_ptr<PreparedPlan> PlanMaker::on_idle_stream(const PlanKey& key,
                                                        const PreparedPlan& busy) const {
  // By streams, unless the settings say otherwise.
  const ExecutorKind executor = only(inputs_.executor).value_or(ExecutorKind::stream);
  const TunedTransfer* const tuned = find_tuned(key, Pattern::one_way, executor);
  if (tuned == nullptr) return nullptr;
  const std::uint64_t bytes = key.requests.front().bytes;
  const double gain_us =
      transfer_us(bytes, tuned->native_gbps) - transfer_us(bytes, tuned->measured_gbps);
  if (!tuned->edited && gain_us < kIdleDelayUs)
    return follow(key, native_choice(bytes), ExecutorKind::stream);
  return executor == busy.executor ? nullptr : follow(key, tuned->choice, executor);
}

std::shared_ptr<PreparedPlan> PlanMaker::make_concurrent(const PlanKey& key) const {
  auto all = make_alone({together(key), key.without});
  if (!all->tuned && !pays_under_contention(all->plan)) {
    auto alone = native(key);
    alone->provisional = false;
    return alone;
  }
  std::vector<TransferPlan> planned = std::move(all->plan.transfers);
  Plan plan = std::move(all->plan);
  plan.transfers.clear();
  for (const Request& request : key.requests) {
    const auto own_plan = std::ranges::find(planned, request, &TransferPlan::request);
    plan.transfers.push_back(std::move(*own_plan));
    planned.erase(own_plan);
  }
  auto result = prepared(std::move(plan), all->executor);
  result->tuned = all->tuned;
  return result;
}

std::shared_ptr<PreparedPlan> PlanMaker::prepared(Plan plan, ExecutorKind executor) const {
  auto result = std::make_shared<PreparedPlan>();
  result->plan = std::move(plan);
  result->schedule = make_schedule(result->plan, inputs_.options.chunks.rings);
  result->executor = executor;
  return result;
}

std::shared_ptr<PreparedPlan> PlanMaker::modelled(const PlanKey& key, ExecutorKind executor) const {
  return prepared(
      make_plan(inputs_.node, *route_sets_of_(route_sets_key(key)), key.requests, inputs_.options),
      executor);
}

std::shared_ptr<PreparedPlan> PlanMaker::native(const PlanKey& key) const {
  Plan plan;
  for (const Request& request : key.requests) {
    TransferPlan& transfer = plan.transfers.emplace_back();
    transfer.request = request;
    const auto link = inputs_.node.find_link(request.src, request.dst);
    if (!link) continue;
    transfer.routes.push_back({.route = {RouteKind::direct, {}, {*link}},
                               .bytes = request.bytes,
                               .chunk_bytes = request.bytes});
    const double gbps = inputs_.node.links[static_cast<std::size_t>(*link)].gbps;
    plan.native_us = std::max(plan.native_us,
                              inputs_.node.costs.copy_start_us + transfer_us(request.bytes, gbps));
  }
  plan.predicted_us = plan.native_us;
  auto result = prepared(std::move(plan), ExecutorKind::stream);
  result->provisional = true;
  return result;
}

const TunedTransfer* PlanMaker::find_tuned(const PlanKey& key, Pattern pattern,
                                           std::optional<ExecutorKind> executor) const {
  const Request& first = key.requests.front();
  if (inputs_.tuned.empty() || first.bytes < inputs_.options.min_bytes) return nullptr;
  const auto find = [&](MemoryId src, MemoryId dst) {
    return find_choice(inputs_.tuned, pattern, pair_class(inputs_.node, src, dst), first.bytes,
                       executor);
  };
  const TunedTransfer* tuned = find(first.src, first.dst);
  // Both ways between two memories are tuned in one order of the two.
  if (tuned == nullptr && pattern == Pattern::both_ways) tuned = find(first.dst, first.src);
  return tuned;
}

std::shared_ptr<PreparedPlan> PlanMaker::tuned_plan(const PlanKey& key, Pattern pattern,
                                                    std::optional<ExecutorKind> executor) const {
  const TunedTransfer* const tuned = find_tuned(key, pattern, executor);
  return tuned == nullptr ? nullptr : follow(key, tuned->choice, tuned->executor);
}

std::shared_ptr<PreparedPlan> PlanMaker::follow(const PlanKey& key, const TransferConfig& choice,
                                                ExecutorKind executor) const {
  auto plan = make_plan(inputs_.node, *route_sets_of_(route_sets_key(key)), key.requests,
                        inputs_.options, choice);
  if (!plan) return nullptr;
  auto result = prepared(std::move(*plan), executor);
  result->tuned = true;
  return result;
}

}  // namespace polypath
