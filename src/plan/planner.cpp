#include "plan/planner.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <tuple>

#include "base/units.hpp"
#include "plan/pair_class.hpp"

namespace polypath {
namespace {

/// Enough for the sizes of a program; when it is reached, everything is computed anew.
constexpr std::size_t kMostPlans = 4096;

/// By so much later than the direct copy the first staged one begins on an idle stream: one message of 16 MiB
/// between two H200 lost 4 us where 1 us was to be gained.
constexpr double kIdleDelayUs = 5;

bool may_be_tuned(const PlanOptions& options) {
  return options.filter == RouteFilter{} && options.max_routes == 0 &&
         options.chunks.chunk_bytes == 0 && options.chunks.chunks == 0;
}

std::optional<ExecutorKind> only(ExecutorChoice choice) {
  switch (choice) {
    case ExecutorChoice::automatic: return std::nullopt;
    case ExecutorChoice::stream: return ExecutorKind::stream;
    case ExecutorChoice::graph: return ExecutorKind::graph;
  }
  return std::nullopt;
}

/// Both directions of one pair, of one size.
bool opposite(const std::vector<Request>& requests) {
  return requests.size() == 2 && requests[0].src == requests[1].dst &&
         requests[0].dst == requests[1].src && requests[0].bytes == requests[1].bytes;
}

}  // namespace

Planner::Planner(const Node& node, PlanOptions options, ExecutorChoice executor)
    : node_(node), options_(std::move(options)), executor_(executor) {}

std::uint64_t Planner::bit(MemoryId memory) const noexcept {
  const std::size_t index =
      static_cast<std::size_t>(memory.index) + (memory.is_gpu() ? 0 : node_.gpus.size());
  return index < 64 ? std::uint64_t{1} << index : 0;
}

std::size_t Planner::Hash::operator()(const Key& key) const noexcept {
  // FNV-1a over the words of the key.
  std::uint64_t hash = 14695981039346656037ull;
  const auto mix = [&](std::uint64_t word) { hash = (hash ^ word) * 1099511628211ull; };
  mix(key.without);
  const auto mix_all = [&](const std::vector<Request>& requests) {
    mix(requests.size());
    for (const Request& request : requests) {
      mix(static_cast<std::uint64_t>(request.src.kind) << 32 |
          static_cast<std::uint32_t>(request.src.index));
      mix(static_cast<std::uint64_t>(request.dst.kind) << 32 |
          static_cast<std::uint32_t>(request.dst.index));
      mix(request.bytes);
    }
  };
  mix_all(key.requests);
  mix_all(key.beside);
  return hash ^ hash >> 29;
}

std::shared_ptr<const Ladder> Planner::ladder(const Key& key) {
  Key proportion = key;
  std::uint64_t divisor = 0;
  for (const Request& request : key.requests) divisor = std::gcd(divisor, request.bytes);
  for (Request& request : proportion.requests)
    if (divisor != 0) request.bytes /= divisor;

  if (const auto known = ladders_.find(proportion); known != ladders_.end()) return known->second;
  RouteFilter filter = options_.filter;
  for (const MemoryId memory : node_.memories())
    if ((key.without & bit(memory)) != 0) filter.without.push_back(memory);
  auto made = std::make_shared<const Ladder>(make_ladder(node_, proportion.requests, filter));
  if (ladders_.size() >= kMostPlans) ladders_.clear();
  ladders_.emplace(std::move(proportion), made);
  return made;
}

std::shared_ptr<const PreparedPlan> Planner::plan(std::span<const Request> requests,
                                                  std::uint64_t without,
                                                  std::span<const Request> beside) {
  const std::lock_guard lock(mutex_);
  Key& key = wanted_;
  key.requests.assign(requests.begin(), requests.end());
  key.without = without;
  key.beside.assign(beside.begin(), beside.end());
  if (const auto known = plans_.find(key); known != plans_.end()) return known->second;
  std::shared_ptr<const PreparedPlan> made =
      key.beside.empty() ? make_alone(key) : make_beside(key);
  if (plans_.size() >= kMostPlans) plans_.clear();
  plans_.emplace(key, made);
  return made;
}

std::shared_ptr<PreparedPlan> Planner::make_alone(const Key& key) {
  std::shared_ptr<PreparedPlan> made;
  const auto executor = only(executor_);
  const bool tunable = key.without == 0 && may_be_tuned(options_);
  if (tunable) {
    if (key.requests.size() == 1) {
      made = tuned_plan(key, Pattern::one_way, executor);
    } else if (opposite(key.requests)) {
      made = tuned_plan(key, Pattern::both_ways, executor);
    }
  }
  if (made == nullptr) made = modelled(key, executor.value_or(ExecutorKind::stream));
  if (tunable && key.requests.size() == 1) {
    made->in_window = tuned_plan(key, Pattern::window, executor);
    if (made->tuned && !made->plan.native())
      made->on_idle_stream = tuned_on_idle_stream(key, made->executor);
  }
  return made;
}

std::shared_ptr<PreparedPlan> Planner::tuned_on_idle_stream(const Key& key, ExecutorKind busy) {
  // By streams, unless the settings say otherwise.
  const ExecutorKind executor = only(executor_).value_or(ExecutorKind::stream);
  const TunedChoice* const found = find_tuned(key, Pattern::one_way, executor);
  if (found == nullptr) return nullptr;
  const std::uint64_t bytes = key.requests.front().bytes;
  const double gain_us =
      transfer_us(bytes, found->native_gbps) - transfer_us(bytes, found->measured_gbps);
  if (!found->edited && gain_us < kIdleDelayUs)
    return made_of(key, native_choice(bytes), ExecutorKind::stream);
  return executor == busy ? nullptr : made_of(key, found->choice, executor);
}

std::shared_ptr<PreparedPlan> Planner::make_beside(const Key& key) {
  // In one order, whoever asks: ties break by it.
  std::vector<Request> all = key.requests;
  for (Request other : key.beside) {
    other.bytes = key.requests.front().bytes;
    all.push_back(other);
  }
  std::ranges::stable_sort(all, [](const Request& a, const Request& b) {
    return std::tie(a.src, a.dst) < std::tie(b.src, b.dst);
  });
  auto together = make_alone({all, key.without});
  std::vector<TransferPlan> planned = std::move(together->plan.transfers);

  auto made = std::make_shared<PreparedPlan>();
  made->plan = std::move(together->plan);
  made->plan.transfers.clear();
  for (const Request& request : key.requests) {
    const auto mine = std::ranges::find(planned, request, &TransferPlan::request);
    made->plan.transfers.push_back(std::move(*mine));
    planned.erase(mine);
  }
  made->schedule = make_schedule(made->plan, options_.chunks.rings);
  made->executor = together->executor;
  made->tuned = together->tuned;
  // What is not worth issuing alone on an idle stream is not worth it beside others.
  if (key.requests.size() == 1) {
    const auto alone = make_alone({key.requests, key.without});
    if (alone->on_idle_stream != nullptr && alone->on_idle_stream->plan.native())
      made->on_idle_stream = alone->on_idle_stream;
  }
  return made;
}

std::shared_ptr<PreparedPlan> Planner::modelled(const Key& key, ExecutorKind executor) {
  auto made = std::make_shared<PreparedPlan>();
  made->plan = make_plan(node_, *ladder(key), key.requests, options_);
  explain(node_, *ladder(key), options_, false, made->plan);
  made->schedule = make_schedule(made->plan, options_.chunks.rings);
  made->executor = executor;
  return made;
}

const TunedChoice* Planner::find_tuned(const Key& key, Pattern pattern,
                                       std::optional<ExecutorKind> executor) const {
  const Request& first = key.requests.front();
  if (tuned_.empty() || first.bytes < options_.min_bytes) return nullptr;
  const auto find = [&](MemoryId src, MemoryId dst) {
    return find_choice(tuned_, pattern, pair_class(node_, src, dst), first.bytes, executor);
  };
  const TunedChoice* found = find(first.src, first.dst);
  // Both ways between two memories are tuned in one order of the two.
  if (found == nullptr && pattern == Pattern::both_ways) found = find(first.dst, first.src);
  return found;
}

std::shared_ptr<PreparedPlan> Planner::tuned_plan(const Key& key, Pattern pattern,
                                                  std::optional<ExecutorKind> executor) {
  const TunedChoice* const found = find_tuned(key, pattern, executor);
  return found == nullptr ? nullptr : made_of(key, found->choice, found->executor);
}

std::shared_ptr<PreparedPlan> Planner::made_of(const Key& key, const Choice& choice,
                                               ExecutorKind executor) {
  auto plan = make_plan(node_, *ladder(key), key.requests, options_, choice);
  if (!plan) return nullptr;
  auto made = std::make_shared<PreparedPlan>();
  made->plan = std::move(*plan);
  explain(node_, *ladder(key), options_, true, made->plan);
  made->schedule = make_schedule(made->plan, options_.chunks.rings);
  made->executor = executor;
  made->tuned = true;
  return made;
}

void Planner::use(std::vector<TunedChoice> tuned) {
  const std::lock_guard lock(mutex_);
  tuned_ = std::move(tuned);
  plans_.clear();
}

std::shared_ptr<const PreparedPlan> Planner::plan_of(const std::vector<Request>& requests,
                                                     const Choice& choice, ExecutorKind executor) {
  const std::lock_guard lock(mutex_);
  return made_of({requests, 0}, choice, executor);
}

std::shared_ptr<const PreparedPlan> Planner::model_plan(const std::vector<Request>& requests,
                                                        ExecutorKind executor) {
  const std::lock_guard lock(mutex_);
  return modelled({requests, 0}, executor);
}

std::vector<Plan> Planner::plans_of_rungs(const std::vector<Request>& requests) {
  const std::lock_guard lock(mutex_);
  const auto all = ladder({requests, 0});
  std::vector<Plan> plans;
  for (const Rung& rung : all->rungs) {
    // A ladder of this rung and the native one alone: the model then takes it wherever it can.
    Ladder one = *all;
    one.rungs = {rung};
    plans.push_back(make_plan(node_, one, requests, options_));
  }
  return plans;
}

void Planner::try_out(const std::vector<Request>& requests,
                      std::shared_ptr<const PreparedPlan> plan) {
  const std::lock_guard lock(mutex_);
  plans_.insert_or_assign(Key{requests, 0}, std::move(plan));
}

void Planner::pin(const std::vector<Request>& requests) {
  auto pinned = std::make_shared<PreparedPlan>(*plan(requests, 0));
  pinned->on_idle_stream = nullptr;
  try_out(requests, std::move(pinned));
}

std::vector<std::vector<Route>> Planner::widest(const std::vector<Request>& requests) {
  const std::lock_guard lock(mutex_);
  const auto ladder_of_all = ladder({requests, 0});
  std::vector<std::vector<Route>> routes(requests.size());
  if (ladder_of_all->rungs.empty()) return routes;
  for (std::size_t t = 0; t < requests.size(); ++t)
    for (const RatedRoute& rated : ladder_of_all->rungs.front().transfers[t])
      routes[t].push_back(rated.route);
  return routes;
}

void Planner::clear() {
  const std::lock_guard lock(mutex_);
  ladders_.clear();
  plans_.clear();
}

}  // namespace polypath
