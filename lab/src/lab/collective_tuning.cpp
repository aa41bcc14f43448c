#include "lab/collective_tuning.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>

#include "base/error.hpp"
#include "base/units.hpp"
#include "collectives/plan/tuned_plan.hpp"
#include "tune/group_timer.hpp"

namespace polypath {
namespace {

constexpr std::array kAllOps{CollectiveOp::allreduce,  CollectiveOp::reduce_scatter,
                             CollectiveOp::all_gather, CollectiveOp::broadcast,
                             CollectiveOp::reduce,     CollectiveOp::all_to_all};
constexpr std::uint64_t kMinMessage = 16 * kKiB;
constexpr std::uint64_t kMaxMessage = 64 * kMiB;
/// Simulated kernels run on the host's cores.
constexpr std::uint64_t kMaxSimulated = 4 * kMiB;
constexpr int kScreeningPairs = 3;
/// The last comparison with the plan's own way.
constexpr int kFinalRows = 9;
/// The best variant must win this many of them, ...
constexpr int kMustWin = 8;
/// ... and be faster by this share: less is noise.
constexpr double kMinGainOfRows = 0.01;

}  // namespace

CollectiveTuning::CollectiveTuning(CollectiveBench& bench, Context& context,
                                   CollectiveTuningRequest request, TuningProgress progress)
    : bench_(bench),
      context_(context),
      request_(std::move(request)),
      progress_(std::move(progress)),
      found_(bench.collectives().basis().tuned) {
  context_.require_place_of_profile();
  if (request_.ops.empty()) request_.ops.assign(kAllOps.begin(), kAllOps.end());
  if (request_.sizes.empty()) {
    const std::uint64_t most = context_.source().simulated ? kMaxSimulated : kMaxMessage;
    for (std::uint64_t bytes = kMinMessage; bytes <= most; bytes *= 2)
      request_.sizes.push_back(bytes);
  }
  for (const std::uint64_t bytes : request_.sizes)
    if (bytes == 0) throw InvalidArgument("size 0 is not allowed: there is nothing to measure");
}

double CollectiveTuning::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
}

bool CollectiveTuning::go_on() {
  Communicator& comm = bench_.collectives().communicator();
  std::array<std::byte, 1> vote{std::byte{1}};
  if (comm.rank() == 0 && !stopped_) {
    const double left = std::max(0.0, request_.budget_s - seconds());
    const bool goes_on = !progress_ || progress_(done_, total_, left, what_);
    if (!goes_on || left == 0) vote.front() = std::byte{0};
  }
  std::vector<std::byte> all(static_cast<std::size_t>(comm.size()));
  comm.exchange(vote, all);
  if (all.front() == std::byte{0}) stopped_ = true;
  return !stopped_;
}

CollectiveBench::PairedUs CollectiveTuning::compare(const Task& task, const TunedCollective& entry,
                                                    int pairs) {
  CollectiveBenchRequest request;
  request.op = task.op;
  request.bytes = task.bytes;
  const bool simulated = context_.source().simulated;
  request.iterations = simulated ? 1 : pairs;
  request.calls = simulated ? 2 : 10;
  if (simulated) request.warmup = 0;  // virtual time is that of the first call, too
  bench_.collectives().set_trial_variant(entry);
  return bench_.compare(request, AlgorithmOverride::tried, /*verify_both=*/pairs == kFinalRows);
}

void CollectiveTuning::tune(const Task& task) {
  Collectives& collectives = bench_.collectives();
  const CollectiveRequest sizes =
      request_of_bytes(task.op, DataType::float32, task.bytes, collectives.communicator().size());
  CollectiveCall call;
  call.op = task.op;
  call.count = sizes.count;
  const CollectivePlan planned = collectives.plan(call);
  const CollectiveRequest request = collectives.request_of(call);
  // Calls that are tried do not go over idle GPUs.
  const auto ways = candidate_variants(collectives.basis().node, request,
                                       collectives.options_of(request, AlgorithmOverride::tried));
  TunedCollective entry;
  entry.op = to_string(task.op);
  entry.ranks = collective_class(collectives.basis().node, request.gpus);
  entry.bytes = sizes.bytes();
  entry.way = variant_of(planned);
  entry.tried = 1;
  std::optional<TunedCollective> best;
  double least = 1;  // times the planned
  for (const CollectiveVariant& way : ways) {
    if (!go_on()) return;  // cut short, it is searched anew next time
    TunedCollective other = entry;
    other.way = way;
    collectives.set_trial_variant(other);
    // The scratch of cells may be too small for it.
    if (variant_of(collectives.plan(call, AlgorithmOverride::tried)) != way) continue;
    const auto us = compare(task, other, kScreeningPairs);
    ++entry.tried;
    const double times = median(us.second) / median(us.first);
    if (times < least) {
      least = times;
      best = other;
    }
  }
  // The best of many measurements is in part luck: once more, against the planned variant.
  const auto us = compare(task, best.value_or(entry), kFinalRows);
  entry.planned_us = entry.us = median(us.first);
  if (best) {
    int won = 0;
    for (std::size_t i = 0; i < us.first.size(); ++i) won += us.second[i] < us.first[i] ? 1 : 0;
    const double tuned_us = median(us.second);
    const bool is_sure = static_cast<std::size_t>(won) * kFinalRows >= kMustWin * us.first.size();
    if (is_sure && tuned_us * (1 + kMinGainOfRows) <= entry.planned_us) {
      entry.way = best->way;
      entry.us = tuned_us;
    }
  }
  keep(std::move(entry));
}

void CollectiveTuning::keep(TunedCollective entry) {
  found_.put(entry);
  if (bench_.collectives().communicator().rank() == 0) context_.save_tuned(std::move(entry));
}

TuningResult CollectiveTuning::run() {
  Collectives& collectives = bench_.collectives();
  const std::string ranks = collective_class(collectives.basis().node, collectives.basis().gpus);
  collectives.use_tuned({});  // what is planned is what the cost model says
  const auto follow = [&](void* /*self*/) { collectives.use_tuned(found_.entries()); };
  const std::unique_ptr<void, std::function<void(void*)>> at_end(this, follow);
  std::vector<Task> tasks;
  for (const CollectiveOp op : request_.ops)
    for (const std::uint64_t bytes : request_.sizes) {
      const std::uint64_t rounded =
          request_of_bytes(op, DataType::float32, bytes, collectives.communicator().size()).bytes();
      const TunedCollective* const known =
          found_.find({.op = std::string(to_string(op)), .ranks = ranks, .bytes = rounded});
      if (known == nullptr || (request_.again && !known->edited)) tasks.push_back({op, bytes});
    }
  total_ = tasks.size();
  for (const Task& task : tasks) {
    what_ = fmt::format("{}, {} KiB", to_string(task.op), task.bytes / kKiB);
    if (!go_on()) break;
    tune(task);
    if (stopped_) break;
    ++done_;
  }
  what_ = "done";
  const bool stopped = stopped_;
  if (!stopped) go_on();
  return {stopped, seconds()};
}

}  // namespace polypath
