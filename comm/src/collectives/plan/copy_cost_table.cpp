#include "collectives/plan/copy_cost_table.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "base/log.hpp"
#include "base/units.hpp"
#include "collectives/plan/islands.hpp"
#include "collectives/plan/mixed_cost.hpp"
#include "collectives/plan/schedule_builder.hpp"
#include "collectives/plan/schedule_time.hpp"

namespace polypath {
namespace {

/// Smaller messages have few chunks: two or three schedules of few steps are timed. 64 KiB, and 512
/// KiB where there are no lanes to try.
constexpr int kMinLog2 = 16;
constexpr int kMinLog2OfOneIsland = 19;
/// From 1 GiB on the chunks of mixed are as large as memory allows; from 512 MiB on those of other
/// algorithms are small next to the message.
constexpr int kMaxLog2 = 30;
constexpr int kMaxLog2OfWhole = 29;
constexpr std::size_t kMaxShared = 8;
/// Parts of a message begin at multiples of this (part_of()).
constexpr std::uint64_t kPartAlignment = 128;

/// An interpolated part of mixed is made smaller by this, less where it is large: a kernel that
/// waits for copies costs more than the reverse.
constexpr double kMargin = 0.01;
/// At the most, where memory is short.
constexpr int kMoreChunks = 16;

std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) { return (a + b - 1) / b; }

/// What is cut into chunks: a lane, or an owner's slice.
std::uint64_t unit_bytes(Algorithm algorithm, int lanes, std::uint64_t bytes, int ranks) {
  return bytes / static_cast<std::uint64_t>(algorithm == Algorithm::hierarchical ? lanes : ranks);
}

/// So large that no unit, which may be longer than others by an alignment, needs one more chunk.
std::uint64_t chunk_bytes_of(std::uint64_t unit, int chunks) {
  const std::uint64_t least = ceil_div(unit + kPartAlignment, static_cast<std::uint64_t>(chunks));
  return ceil_div(least, kPartAlignment) * kPartAlignment;
}

AlgorithmCost no_memory(Algorithm algorithm) {
  AlgorithmCost cost;
  cost.algorithm = algorithm;
  cost.reason = "there is too little scratch or host memory for its chunks";
  return cost;
}

double between(double low, double high, double part) { return low + part * (high - low); }

}  // namespace

CopyCostTable::CopyCostTable(Node node, std::vector<int> gpus)
    : node_(std::move(node)),
      gpus_(std::move(gpus)),
      islands_(find_islands(node_, gpus_, /*by_socket=*/false)) {}

std::shared_ptr<CopyCostTable> CopyCostTable::shared(const Node& node,
                                                     const std::vector<int>& gpus) {
  // Never destroyed: a thread may still plan while the process ends.
  static auto& mutex = *new std::mutex;
  static auto& tables = *new std::vector<std::shared_ptr<CopyCostTable>>;
  const std::lock_guard lock(mutex);
  const auto known =
      std::ranges::find_if(tables, [&](const auto& table) { return table->is_for(node, gpus); });
  if (known != tables.end()) {
    std::rotate(known, known + 1, tables.end());
    return tables.back();
  }
  if (tables.size() == kMaxShared) tables.erase(tables.begin());
  tables.push_back(std::make_shared<CopyCostTable>(node, gpus));
  return tables.back();
}

const CopyCostTable::Entry& CopyCostTable::entry(const Question& question, int log2_bytes,
                                                 Cut cut) {
  const auto& [request, options, algorithm] = question;
  const bool widens = algorithm == Algorithm::hierarchical &&
                      size_of(request.partial_type()) > size_of(request.type);
  const SumOrder order = request.needs_tree() ? SumOrder::tree : SumOrder::rank;
  CollectiveOptions plain;
  plain.explain = false;
  plain.kernels = options.kernels;
  plain.scratch_bytes = options.scratch_bytes;
  if (algorithm == Algorithm::mixed) {  // it takes no more, even if there is more
    plain.limits = options.limits;
    plain.scratch_bytes = std::min(options.scratch_bytes, kMixedScratch);
    plain.host_bytes = std::min(options.host_bytes, kMixedHost);
  }
  if (algorithm == Algorithm::host_trees) plain.host_bytes = options.host_bytes;
  const Key key{.op = request.op,
                .algorithm = algorithm,
                .order = order,
                .widens = widens,
                .kernels = options.kernels,
                .root = request.root,
                .limits = plain.limits,
                .log2_bytes = log2_bytes,
                .cut = cut,
                .scratch_bytes = plain.scratch_bytes,
                .host_bytes = plain.host_bytes};
  const std::lock_guard lock(mutex_);
  const auto known = entries_.find(key);
  if (known != entries_.end()) return known->second;
  CollectiveRequest sized =
      request_of_bytes(request.op, widens ? DataType::bfloat16 : DataType::float32,
                       std::uint64_t{1} << log2_bytes, request.ranks());
  sized.gpus = gpus_;
  sized.root = request.root;
  sized.order = order;
  Entry entry{time_entry(sized, plain, algorithm, cut), sized.bytes(), 0};
  entry.cost.stages.clear();
  entry.kernel_bytes = (sized.count - entry.cost.host_count) * size_of(sized.type);
  return entries_.emplace(key, std::move(entry)).first->second;
}

AlgorithmCost CopyCostTable::time_entry(const CollectiveRequest& request,
                                        const CollectiveOptions& options, Algorithm algorithm,
                                        Cut cut) const {
  if (cut.chunks == 0) return cost_by_copies(node_, request, options, algorithm);
  AlgorithmCost cost;
  cost.algorithm = algorithm;
  if (algorithm == Algorithm::mixed) {
    const MixedCost mixed = mixed_cost_in(node_, request, options, cut.chunks);
    cost.us = mixed.us;
    cost.host_count = mixed.count;
    cost.chunks = cut.chunks;
    return cost;
  }
  CollectivePlan plan;
  plan.request = request;
  plan.algorithm = algorithm;
  plan.islands = islands_;
  plan.lanes = cost.lanes = cut.lanes;
  plan.chunk_bytes = chunk_bytes_of(
      unit_bytes(algorithm, cut.lanes, request.bytes(), request.ranks()), cut.chunks);
  const CollectiveSchedule schedule = make_collective_schedule(node_, plan);
  if (has_memory(options, schedule)) cost.us = schedule_time(node_, schedule).us;
  return cost;
}

CopyCostTable::Cut CopyCostTable::cut_of(const Entry& entry) const {
  const AlgorithmCost& cost = entry.cost;
  if (cost.algorithm == Algorithm::mixed) return {cost.lanes, cost.chunks};
  // Its longest unit, which alignment may have made longer than the others.
  const auto parts = static_cast<std::uint64_t>(
      cost.algorithm == Algorithm::hierarchical ? cost.lanes : static_cast<int>(gpus_.size()));
  std::uint64_t longest = 0;
  for (std::uint64_t i = 0; i < parts; ++i)
    longest = std::max(longest, part_of(entry.bytes, parts, i, DataType::int8).count);
  return {cost.lanes, static_cast<int>(ceil_div(longest, cost.chunk_bytes))};
}

CopyCostTable::Entry CopyCostTable::interpolated(const Question& question, const Entry& low,
                                                 const Entry& high, int high_log2) {
  const auto& [request, options, algorithm] = question;
  const double part = static_cast<double>(request.bytes() - std::min(request.bytes(), low.bytes)) /
                      static_cast<double>(high.bytes - low.bytes);
  Entry best{.cost = {}, .bytes = request.bytes(), .kernel_bytes = 0};
  const auto consider = [&](Cut cut) {
    const Entry& at_low = entry(question, high_log2 - 1, cut);
    const Entry& at_high = entry(question, high_log2, cut);
    if (at_low.cost.us == 0 || at_high.cost.us == 0) return;
    const double us = between(at_low.cost.us, at_high.cost.us, part);
    if (best.cost.us > 0 && us >= best.cost.us) return;
    best.cost = at_high.cost;
    best.cost.us = us;
    best.kernel_bytes = static_cast<std::uint64_t>(between(
        static_cast<double>(at_low.kernel_bytes), static_cast<double>(at_high.kernel_bytes), part));
    if (algorithm != Algorithm::mixed)
      best.cost.chunk_bytes = chunk_bytes_of(
          unit_bytes(algorithm, cut.lanes, request.bytes(), request.ranks()), cut.chunks);
  };
  const Cut first = cut_of(low);
  const Cut second = cut_of(high);
  consider(second);
  if (first != second) consider(first);
  const Cut middle{second.lanes, (first.chunks + second.chunks) / 2};
  if (middle != first && middle != second) consider(middle);
  // Chunks may be just as large as scratch allows, and larger once they are aligned.
  if (best.cost.us == 0) consider({second.lanes, 2 * second.chunks});
  if (best.cost.us == 0) best.cost = no_memory(algorithm);
  return best;
}

CopyCostTable::Entry CopyCostTable::extrapolated(const Question& question, const Entry& low,
                                                 const Entry& high) {
  Entry entry = high;
  entry.bytes = question.request.bytes();
  const double times = static_cast<double>(entry.bytes) / static_cast<double>(high.bytes);
  const double part =
      static_cast<double>(entry.bytes - low.bytes) / static_cast<double>(high.bytes - low.bytes);
  entry.cost.us = low.cost.us > 0 ? between(low.cost.us, high.cost.us, part) : times * high.cost.us;
  entry.cost.chunks = static_cast<int>(std::ceil(times * high.cost.chunks));
  entry.kernel_bytes = static_cast<std::uint64_t>(times * static_cast<double>(high.kernel_bytes));
  return entry;
}

AlgorithmCost CopyCostTable::split_mixed(const Question& question, const Entry& entry,
                                         bool is_timed) const {
  const auto& [request, options, algorithm] = question;
  AlgorithmCost cost = entry.cost;
  auto kernel_bytes = static_cast<double>(entry.kernel_bytes);
  if (!is_timed) {
    const auto bytes = static_cast<double>(entry.bytes);
    const double share = 1 - kernel_bytes / bytes;
    kernel_bytes += kMargin * std::max(0.0, 1 - 2 * share) * share * bytes;
  }
  const auto rest = static_cast<std::uint64_t>(kernel_bytes);
  MixedSplit split = mixed_split(request, rest, cost.chunks);
  // Where the last chunk is no whole one it has memory of its own.
  for (int more = 0; more < kMoreChunks && !has_memory(node_, options, split); ++more)
    split = mixed_split(request, rest, ++cost.chunks);
  if (split.part.count == 0 || !has_memory(node_, options, split)) return no_memory(algorithm);
  cost.host_count = split.part.count;
  cost.chunk_bytes = split.chunk_bytes;
  cost.kernel = flat_cost(node_, split.rest, options.limits).kernel;
  return cost;
}

AlgorithmCost CopyCostTable::cost(const CollectiveRequest& request,
                                  const CollectiveOptions& options, Algorithm algorithm) {
  const std::uint64_t bytes = request.bytes();
  const bool is_mixed = algorithm == Algorithm::mixed;
  const int least = algorithm == Algorithm::hierarchical ? kMinLog2 : kMinLog2OfOneIsland;
  if (bytes <= std::uint64_t{1} << least) {
    CollectiveOptions plain = options;
    plain.table = nullptr;
    plain.explain = false;
    return cost_by_copies(node_, request, plain, algorithm);
  }
  const Question question{request, options, algorithm};
  const int log2_bytes =
      std::min(static_cast<int>(std::bit_width(bytes - 1)), is_mixed ? kMaxLog2 : kMaxLog2OfWhole);
  const Entry& high = entry(question, log2_bytes);
  if (high.cost.us == 0) return high.cost;
  if (bytes == high.bytes) return is_mixed ? split_mixed(question, high, true) : high.cost;
  const Entry& low = entry(question, log2_bytes - 1);
  if (bytes < high.bytes && low.cost.us == 0) return low.cost;
  const Entry entry = bytes < high.bytes ? interpolated(question, low, high, log2_bytes)
                                         : extrapolated(question, low, high);
  return is_mixed && entry.cost.us > 0 ? split_mixed(question, entry, false) : entry.cost;
}

void CopyCostTable::fill_allreduce(const CollectiveOptions& options, SumOrder order) noexcept {
  CollectiveOptions table_options = options;
  table_options.table = this;
  table_options.explain = false;
  // Partial sums of a half type are larger than elements.
  for (const DataType type : {DataType::float32, DataType::bfloat16})
    for (int log2_bytes = kMinLog2; log2_bytes <= kMaxLog2; ++log2_bytes) try {
        CollectiveRequest request = request_of_bytes(CollectiveOp::allreduce, type,
                                                     (std::uint64_t{1} << log2_bytes) * 3 / 4,
                                                     static_cast<int>(gpus_.size()));
        request.gpus = gpus_;
        request.order = order;
        plan_collective(node_, request, table_options);
      } catch (const std::exception& error) {
        log_info("the costs of an allreduce are computed once it is called: {}", error.what());
        return;
      }
}

}  // namespace polypath
