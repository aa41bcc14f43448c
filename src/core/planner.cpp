#include "core/planner.hpp"

#include <numeric>

namespace polypath {
namespace {

/// Enough for the sizes of a program; when it is reached, everything is computed anew.
constexpr std::size_t kMostPlans = 4096;

}  // namespace

Planner::Planner(const Node& node, PlanOptions options)
    : node_(node), options_(std::move(options)) {}

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
  for (const Request& request : key.requests) {
    mix(static_cast<std::uint64_t>(request.src.kind) << 32 |
        static_cast<std::uint32_t>(request.src.index));
    mix(static_cast<std::uint64_t>(request.dst.kind) << 32 |
        static_cast<std::uint32_t>(request.dst.index));
    mix(request.bytes);
  }
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
                                                  std::uint64_t without) {
  const std::lock_guard lock(mutex_);
  Key& key = wanted_;
  key.requests.assign(requests.begin(), requests.end());
  key.without = without;
  if (const auto known = plans_.find(key); known != plans_.end()) return known->second;
  auto made = std::make_shared<PreparedPlan>();
  made->plan = make_plan(node_, *ladder(key), key.requests, options_);
  made->schedule = make_schedule(made->plan, options_.chunks.rings);
  if (plans_.size() >= kMostPlans) plans_.clear();
  plans_.emplace(key, made);
  return made;
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
