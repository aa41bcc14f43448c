#include "plan/planner.hpp"

#include <algorithm>
#include <utility>

namespace polypath {
namespace {

/// Copies in the schedules of all kept plans, each plan counting some for itself: about 10 MB.
constexpr std::size_t kMaxCopies = 100'000;
constexpr std::size_t kCopiesOfAPlan = 24;
/// Routes of all kept route sets: about 10 MB.
constexpr std::size_t kMaxRoutes = 100'000;

/// With this number of routes in all route sets a plan takes less than 15 us (lab/bench/plan_cost).
constexpr std::size_t kCheapRoutes = 64;

std::size_t routes_of(const RouteSets& route_sets) {
  std::size_t routes = 0;
  for (const RouteSet& route_set : route_sets.sets)
    for (const auto& transfer : route_set.transfers) routes += transfer.size();
  return routes;
}

std::size_t copies_of(const PreparedPlan& plan) {
  std::size_t copies = kCopiesOfAPlan + plan.schedule.order.size();
  for (const auto& other : {plan.in_window, plan.on_idle_stream, plan.in_sequence})
    if (other != nullptr) copies += other->schedule.order.size();
  return copies;
}

}  // namespace

// ---- keys
// ----------------------------------------------------------------------------------------

PlanKey Planner::View::key() const {
  return {{requests.begin(), requests.end()}, without, {concurrent.begin(), concurrent.end()}};
}

std::size_t Planner::Hash::operator()(const View& key) const noexcept {
  // FNV-1a over the words of the key.
  std::uint64_t hash = 14695981039346656037ull;
  const auto mix = [&](std::uint64_t word) { hash = (hash ^ word) * 1099511628211ull; };
  mix(key.without);
  for (const auto requests : {key.requests, key.concurrent}) {
    mix(requests.size());
    for (const Request& request : requests) {
      for (const MemoryId memory : {request.src, request.dst})
        mix(static_cast<std::uint64_t>(memory.kind) << 32 |
            static_cast<std::uint32_t>(memory.index));
      mix(request.bytes);
    }
  }
  return hash ^ hash >> 29;
}

bool Planner::Equal::operator()(const View& a, const View& b) const noexcept {
  return a.without == b.without && std::ranges::equal(a.requests, b.requests) &&
         std::ranges::equal(a.concurrent, b.concurrent);
}

// ---- inputs
// --------------------------------------------------------------------------------------

bool Planner::State::share(const Request& a, const Request& b) const {
  const Node& node = inputs.node;
  const std::size_t memories = node.gpus.size() + node.hosts.size();
  const auto index = [&](MemoryId memory) {
    return static_cast<std::size_t>(memory.index) + (memory.is_gpu() ? 0 : node.gpus.size());
  };
  const Links& of_a = links[index(a.src) * memories + index(a.dst)];
  const Links& of_b = links[index(b.src) * memories + index(b.dst)];
  for (std::size_t i = 0; i < of_a.size(); ++i)
    if (of_a[i] && of_b[i]) return true;
  return false;
}

Planner::StatePtr Planner::make_state(PlanInputs inputs) {
  auto state = std::make_shared<State>();
  const Node& node = inputs.node;
  for (const MemoryId src : node.memories()) {
    for (const MemoryId dst : node.memories()) {
      Links& passed = state->links.emplace_back(node.links.size() + node.ports.size());
      for (const Route& route : find_routes(node, src, dst, inputs.options.filter)) {
        for (const int leg : route.legs) {
          const auto link = static_cast<std::size_t>(leg);
          passed[link] = true;
          for (const int port : node.links[link].ports)
            passed[node.links.size() + static_cast<std::size_t>(port)] = true;
        }
      }
    }
  }
  state->inputs = std::move(inputs);
  return state;
}

Planner::Planner(PlanInputs inputs, Later later)
    : later_(std::move(later)),
      state_(make_state(std::move(inputs))),
      kept_route_sets_(kMaxRoutes),
      plans_(kMaxCopies) {}

Planner::StatePtr Planner::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

void Planner::set_state(PlanInputs inputs, bool with_route_sets) {
  auto next = make_state(std::move(inputs));
  const std::lock_guard lock(mutex_);
  state_ = std::move(next);
  plans_.clear();
  if (with_route_sets) kept_route_sets_.clear();
}

void Planner::use(const Node& node) {
  PlanInputs inputs = state()->inputs;
  inputs.node = node;
  set_state(std::move(inputs), true);
}

void Planner::use(std::vector<TunedTransfer> tuned) {
  PlanInputs inputs = state()->inputs;
  inputs.tuned = std::move(tuned);
  set_state(std::move(inputs), false);
}

std::uint64_t Planner::bit(MemoryId memory) const {
  return memory_bit(state()->inputs.node, memory);
}

// ---- what is known
// -------------------------------------------------------------------------------

std::shared_ptr<const PreparedPlan> Planner::known(const View& key) {
  const std::lock_guard lock(mutex_);
  const auto* const entry = plans_.find(key);
  return entry == nullptr ? nullptr : *entry;
}

std::shared_ptr<const RouteSets> Planner::known_route_sets(const PlanKey& route_sets_key) {
  const std::lock_guard lock(mutex_);
  const auto* const entry = kept_route_sets_.find(route_sets_key);
  return entry == nullptr ? nullptr : *entry;
}

std::shared_ptr<const PreparedPlan> Planner::keep(const StatePtr& state, const PlanKey& key,
                                                  std::shared_ptr<const PreparedPlan> plan) {
  decltype(plans_.put(key, plan, 0)) out;  // destroyed after the lock is released
  const std::lock_guard lock(mutex_);
  if (state == state_) out = plans_.put(key, plan, copies_of(*plan));
  return plan;
}

// ---- computing, without the lock
// -----------------------------------------------------------------

std::shared_ptr<const RouteSets> Planner::route_sets(const StatePtr& state,
                                                     const PlanKey& route_sets_key, bool in_serve) {
  if (auto existing = known_route_sets(route_sets_key)) return existing;
  if (in_serve) ++route_sets_in_serve_;
  const auto computed = PlanMaker(state->inputs, {}).make_route_sets_of(route_sets_key);
  decltype(kept_route_sets_.put(route_sets_key, computed, 0)) out;
  const std::lock_guard lock(mutex_);
  if (state == state_)
    out = kept_route_sets_.put(route_sets_key, computed, 1 + routes_of(*computed));
  return computed;
}

PlanMaker Planner::maker(const StatePtr& state, bool in_serve) {
  return {state->inputs, [this, state, in_serve](const PlanKey& route_sets_key) {
            return route_sets(state, route_sets_key, in_serve);
          }};
}

std::vector<Request> Planner::relevant_transfers(const State& state,
                                                 std::span<const Request> requests,
                                                 std::span<const Request> concurrent) const {
  std::vector<Request> counted;
  for (const Request& other : concurrent)
    if (std::ranges::any_of(requests,
                            [&](const Request& request) { return state.share(request, other); }))
      counted.push_back(other);
  return counted;
}

std::shared_ptr<const PreparedPlan> Planner::plan(std::span<const Request> requests,
                                                  std::uint64_t without,
                                                  std::span<const Request> concurrent) {
  const StatePtr state = this->state();
  const auto counted = relevant_transfers(*state, requests, concurrent);
  const View view{requests, without, counted};
  if (auto existing = known(view)) return existing;
  const PlanKey key = view.key();
  return keep(state, key, maker(state, false).make(key));
}

std::shared_ptr<const PreparedPlan> Planner::serve(std::span<const Request> requests,
                                                   std::uint64_t without,
                                                   std::span<const Request> concurrent) {
  if (!later_ || exact_ > 0) return plan(requests, without, concurrent);
  if (concurrent.empty())
    if (auto existing = known({requests, without, concurrent})) return existing;
  const StatePtr state = this->state();
  const auto counted = relevant_transfers(*state, requests, concurrent);
  const View view{requests, without, counted};
  if (auto existing = known(view)) return existing;
  PlanKey key = view.key();
  const bool whole = !maker(state, true).has_variants(key);
  auto computed = cheap(state, key);
  if (computed != nullptr && whole) return keep(state, key, std::move(computed));
  const bool has_others = !key.concurrent.empty();
  const auto native = [&] { return maker(state, true).native(key); };
  if (computed == nullptr) computed = has_others ? serve(requests, without) : native();
  compute_later(std::move(key));
  return computed;
}

std::shared_ptr<const PreparedPlan> Planner::cheap(const StatePtr& state, const PlanKey& key) {
  const auto route_sets = known_route_sets(PlanMaker::route_sets_key(key));
  if (route_sets == nullptr || routes_of(*route_sets) > kCheapRoutes) return nullptr;
  ++plans_in_serve_;
  return maker(state, true).make_main(key);
}

void Planner::compute_later(PlanKey key) {
  {
    const std::lock_guard lock(mutex_);
    if (!pending_.insert(key).second) return;
  }
  const auto no_longer_pending = [this](const PlanKey& done) {
    const std::lock_guard lock(mutex_);
    pending_.erase(done);
  };
  const auto task = [this, key, no_longer_pending] {
    ++computed_later_;
    try {
      plan(key.requests, key.without, key.concurrent);
    } catch (...) {
      no_longer_pending(key);
      throw;
    }
    no_longer_pending(key);
  };
  if (!later_(task)) no_longer_pending(key);
}

void Planner::plan_later(const Request& request, std::function<void(const PreparedPlan&)> then) {
  const auto now = [this, request, then = std::move(then)] { then(*plan({&request, 1}, 0)); };
  const bool at_once = !later_ || exact_ > 0 || known({{&request, 1}, 0, {}}) != nullptr;
  if (at_once || !later_(now)) now();
}

// ---- for people, and for measurements -----------------------------------------------------------

Plan Planner::explained(const std::vector<Request>& requests) {
  const StatePtr state = this->state();
  const auto prepared = plan(requests, 0);
  const auto known = route_sets(state, PlanMaker::route_sets_key({requests, 0}), false);
  Plan plan = prepared->plan;
  if (requests.size() > 1) {
    std::vector<Demand> exactly = known->candidates;
    for (std::size_t t = 0; t < requests.size(); ++t)
      exactly[t].bytes = std::max<std::uint64_t>(requests[t].bytes, 1);
    plan.limit_gbps = maximum_flow(state->inputs.node, exactly).gbps;
  }
  explain(state->inputs.node, *known, state->inputs.options, prepared->tuned, plan);
  return plan;
}

std::shared_ptr<const PreparedPlan> Planner::plan_of(const std::vector<Request>& requests,
                                                     const TransferConfig& choice,
                                                     ExecutorKind executor) {
  const StatePtr state = this->state();
  return maker(state, false).follow({requests, 0}, choice, executor);
}

std::shared_ptr<const PreparedPlan> Planner::model_plan(const std::vector<Request>& requests,
                                                        ExecutorKind executor) {
  const StatePtr state = this->state();
  return maker(state, false).modelled({requests, 0}, executor);
}

std::vector<Plan> Planner::plans_per_route_set(const std::vector<Request>& requests) {
  const StatePtr state = this->state();
  const auto all = route_sets(state, PlanMaker::route_sets_key({requests, 0}), false);
  std::vector<Plan> plans;
  for (const RouteSet& route_set : all->sets) {
    // With this route set and the native one alone, the model takes the first wherever it can.
    RouteSets single = *all;
    single.sets = {route_set};
    plans.push_back(make_plan(state->inputs.node, single, requests, state->inputs.options));
  }
  return plans;
}

std::vector<std::vector<Route>> Planner::widest(const std::vector<Request>& requests) {
  const StatePtr state = this->state();
  std::vector<std::vector<Route>> routes(requests.size());
  const auto known = route_sets(state, PlanMaker::route_sets_key({requests, 0}), false);
  if (known->sets.empty()) return routes;
  for (std::size_t t = 0; t < requests.size(); ++t)
    for (const RatedRoute& rated : known->sets.front().transfers[t])
      routes[t].push_back(rated.route);
  return routes;
}

Planner::Counts Planner::counts() const {
  const std::lock_guard lock(mutex_);
  return {route_sets_in_serve_, plans_in_serve_, computed_later_,
          plans_.size(),        plans_.weight(), kept_route_sets_.size()};
}

}  // namespace polypath
