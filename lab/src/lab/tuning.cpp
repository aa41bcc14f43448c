#include "lab/tuning.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "base/units.hpp"
#include "lab/pairs.hpp"
#include "plan/pair_class.hpp"
#include "tune/group_timer.hpp"

namespace polypath {
namespace {

constexpr std::uint64_t kMinSize = 4 * kMiB;
constexpr std::uint64_t kMaxSize = 512 * kMiB;
/// A window moves sixteen times as much; what is best for it no longer changes with the size.
constexpr std::uint64_t kMaxInWindow = 64 * kMiB;
/// The last comparison with the native copy, in alternating pairs.
constexpr int kFinalPairs = 9;
constexpr int kRepetitions = 3;
/// The best transfer must be faster than the cost model's own choice by this share.
constexpr double kMinGain = 0.002;
/// Splitting must be faster than the native copy by this factor, or the native copy is the choice.
constexpr double kMinSpeedup = 1.02;
/// ... and shorten the transfer by this time: less is lost where other transfers follow at once.
constexpr double kMinGainUs = 2;
constexpr ExecutorKind kExecutors[] = {ExecutorKind::stream, ExecutorKind::graph};

std::vector<Request> group_of(Pattern pattern, const Request& request) {
  if (pattern != Pattern::both_ways) return {request};
  return {request, {request.dst, request.src, request.bytes}};
}

}  // namespace

Tuning::Tuning(Context& context, TuningRequest request, TuningProgress progress)
    : context_(context), request_(std::move(request)), progress_(std::move(progress)) {
  context_.require_place_of_profile();
  if (request_.pairs.empty()) request_.pairs = one_of_each_class(context_.node());
  if (request_.sizes.empty())
    for (std::uint64_t bytes = kMinSize; bytes <= kMaxSize; bytes *= 2)
      request_.sizes.push_back(bytes);
  for (const std::uint64_t bytes : request_.sizes)
    if (bytes < 256 * kKiB)
      throw InvalidArgument(
          fmt::format("size {} is not allowed: transfers below 256 KiB are never split", bytes));
  for (Request& pair : request_.pairs) {
    pair.bytes = request_.sizes.front();
    static_cast<void>(context_.plan({pair}));  // checks the memories
  }
}

double Tuning::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
}

bool Tuning::report() {
  if (stopped_) return false;  // after a stop the caller is not asked again
  const double left = std::max(0.0, request_.budget_s - seconds());
  if (progress_ && !progress_(done_, total_, left, what_)) stopped_ = true;
  if (!request_.exhaustive && seconds() > request_.budget_s) stopped_ = true;
  return !stopped_;
}

std::vector<Tuning::Task> Tuning::tasks() const {
  std::vector<Task> tasks;
  // Large sizes first: they gain most, should time run out.
  auto sizes = request_.sizes;
  std::ranges::sort(sizes, std::greater());
  for (const std::uint64_t bytes : sizes)
    for (const Pattern pattern : kPatterns)
      for (const Request& pair : request_.pairs) {
        if (pattern == Pattern::window && bytes > kMaxInWindow) continue;
        // For both ways between a GPU and host memory only one order is a class of its own.
        if (pattern == Pattern::both_ways && pair.src.is_host()) continue;
        Task task{
            pattern, {pair.src, pair.dst, bytes}, pair_class(context_.node(), pair.src, pair.dst)};
        if (!is_known(task)) tasks.push_back(std::move(task));
      }
  return tasks;
}

bool Tuning::is_known(const Task& task, ExecutorKind executor) const {
  const ProfileTable<TunedTransfer> choices = context_.tuned<TunedTransfer>();
  const TunedTransfer* const known = choices.find({.pattern = task.pattern,
                                                   .pair = task.pair,
                                                   .choice = {.bytes = task.request.bytes},
                                                   .executor = executor});
  return known != nullptr && (known->edited || !request_.again);
}

bool Tuning::is_known(const Task& task) const {
  return std::ranges::all_of(kExecutors,
                             [&](ExecutorKind executor) { return is_known(task, executor); });
}

std::vector<TransferConfig> Tuning::starts(const std::vector<Request>& group) {
  std::vector<TransferConfig> all;
  for (const Plan& plan : context_.planner().plans_per_route_set(group)) {
    TransferConfig choice = choice_of(plan);
    const bool new_one = !choice.routes.empty() && std::ranges::find(all, choice) == all.end();
    if (new_one) all.push_back(std::move(choice));
  }
  return all;
}

std::optional<double> Tuning::time_us(const TransferConfig& choice, ExecutorKind executor,
                                      const std::vector<Request>& group, TransferSet& set) {
  const auto prepared = context_.planner().plan_of(group, choice, executor);
  if (prepared == nullptr) return std::nullopt;
  GroupTimer timer(context_.driver(), set.streams());
  const auto issue = [&] { set.issue_polypath(prepared.get()); };
  const auto ahead = set.ahead();
  timer.run(issue, ahead);
  std::vector<double> samples;
  for (int i = 0; i < (context_.source().simulated ? 1 : kRepetitions); ++i)
    samples.push_back(timer.run(issue, ahead));
  return median(samples);
}

void Tuning::tune(const Task& task) {
  const std::vector<Request> group = group_of(task.pattern, task.request);
  TransferSet set(context_, group, task.pattern == Pattern::window ? kTunedWindow : 1);
  auto from = starts(group);
  for (const ExecutorKind executor : kExecutors) {
    if (is_known(task, executor)) continue;
    const auto best = tune(task, executor, group, from, set);
    if (!best) return;
    // What is best for one is near what is best for the other.
    from.insert(from.begin(), *best);
  }
}

std::optional<TransferConfig> Tuning::tune(const Task& task, ExecutorKind executor,
                                           const std::vector<Request>& group,
                                           const std::vector<TransferConfig>& from,
                                           TransferSet& set) {
  SearchOptions options;
  // Virtual time has no noise.
  if (context_.source().simulated) options.min_gain = 0.0002;
  // However little of the task's time is left, one choice at least is measured.
  int measured = 0;
  options.stop = [&] { return !report() || (measured > 0 && seconds() > task_ends_s_); };
  const auto measure = [&](const TransferConfig& choice) {
    ++measured;
    return time_us(choice, executor, group, set);
  };
  const SearchResult result = request_.exhaustive ? exhaustive_search(from, measure, options)
                                                  : local_search(from, measure, options);
  // Cut short, it is searched anew next time.
  if (stopped_ || !result.best) return std::nullopt;

  TunedTransfer tuned;
  tuned.pattern = task.pattern;
  tuned.pair = task.pair;
  tuned.choice = confirmed(*result.best, executor, group, set);
  tuned.executor = executor;
  tuned.tried = result.tried;
  const auto prepared = context_.planner().plan_of(group, tuned.choice, executor);
  set.verify("polypath", [&] { set.issue_polypath(prepared.get()); });
  PairOptions pairs;
  pairs.iterations = context_.source().simulated ? 1 : kFinalPairs;
  pairs.ahead = set.ahead();
  const PairSamples samples = measure_pairs(
      context_.driver(), set.streams(), [&] { set.issue_native(); },
      [&] { set.issue_polypath(prepared.get()); }, pairs);
  const double native_us = samples.native.median_device_us();
  const double polypath_us = samples.polypath.median_device_us();
  tuned.native_gbps = rate_gbps(set.bytes(), native_us);
  tuned.measured_gbps = rate_gbps(set.bytes(), polypath_us);
  tuned.predicted_gbps = rate_gbps(prepared->plan.bytes(), prepared->plan.predicted_us);
  const double gain_us =
      (native_us - polypath_us) / (task.pattern == Pattern::window ? kTunedWindow : 1);
  if (native_us < polypath_us * kMinSpeedup || gain_us < kMinGainUs) {
    tuned.choice = native_choice(task.request.bytes);
    tuned.measured_gbps = tuned.native_gbps;
    tuned.predicted_gbps = rate_gbps(prepared->plan.bytes(), prepared->plan.native_us);
  }
  context_.save_tuned_transfer(std::move(tuned));
  return result.best;
}

TransferConfig Tuning::confirmed(const TransferConfig& candidate, ExecutorKind executor,
                                 const std::vector<Request>& group, TransferSet& set) {
  Planner& planner = context_.planner();
  const auto modelled = planner.model_plan(group, executor);
  const TransferConfig own = choice_of(modelled->plan);
  if (own.routes.empty() || own == candidate) return candidate;
  PairOptions pairs;
  pairs.iterations = context_.source().simulated ? 1 : kFinalPairs;
  const PairSamples samples =
      set.compare(*modelled, *planner.plan_of(group, candidate, executor), pairs);
  const double min_gain = context_.source().simulated ? 0 : kMinGain;
  const bool gains =
      samples.polypath.median_device_us() * (1 + min_gain) <= samples.native.median_device_us();
  return gains ? candidate : own;
}

TuningResult Tuning::run() {
  const NodeSource& source = context_.source();
  if (!source.simulated && source.capacities != Capacities::measured) {
    what_ = "measuring the links first";
    if (report()) context_.measure({});
  }
  const std::vector<Task> all = tasks();
  total_ = all.size();
  for (const Task& task : all) {
    what_ = fmt::format("{} to {}, {}, {} MiB", to_string(task.request.src),
                        to_string(task.request.dst), to_string(task.pattern),
                        task.request.bytes / kMiB);
    if (!report()) break;
    // What is left, evenly; small sizes, which come last, take less than their part.
    const double left = request_.budget_s - seconds();
    task_ends_s_ =
        request_.exhaustive ? 1e9 : seconds() + 2 * left / static_cast<double>(total_ - done_);
    tune(task);
    ++done_;
  }
  what_ = "done";
  const bool stopped = stopped_;
  if (!stopped) report();
  return {stopped, seconds()};
}

}  // namespace polypath
