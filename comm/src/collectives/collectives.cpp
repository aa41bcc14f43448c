#include "collectives/collectives.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/units.hpp"
#include "collectives/call_arguments.hpp"
#include "collectives/call_match.hpp"
#include "collectives/kernels/rank_roles.h"
#include "collectives/kernels/relay_layout.h"
#include "collectives/plan/kernel_cost.hpp"
#include "collectives/plan/relays.hpp"
#include "collectives/plan/tuned_plan.hpp"
#include "collectives/result_windows.hpp"
#include "comm/deferred_memory.hpp"
#include "comm/ll128_probe.hpp"
#include "comm/relay_memory.hpp"
#include "driver/check.hpp"
#include "driver/context_guard.hpp"
#include "driver/resources.hpp"
#include "exec/devices.hpp"

namespace polypath {
namespace {

/// A kept plan by kernels weighs 1, about 2 KB; one by copies has its steps as well.
constexpr std::size_t kStepsOfAWeight = 32;
static_assert(kMaxRanks == kMaxRanksPerNode);

/// The slots of a channel's ring. With four, a credit is signalled in the step before the one that
/// needs it; with eight, ranks may be some steps apart, and lags longer.
constexpr std::uint32_t kSlots = 8;
constexpr std::uint32_t kSlotBytes = 32 * kKiB;
/// Limits the rings of a communicator that is not its GPU's first one, of up to four ranks and of
/// more: programs have many. Tiles of 16 KiB are within 1 % of those of 32 KiB (4 x H200, 64 MiB,
/// kernels_on_gpus). Where scratch is taken when it is needed, they limit all scratch of kernels
/// but for lines, of each communicator.
constexpr std::uint64_t kRingBytes = 64 * kMiB;
constexpr std::uint64_t kRingBytesOfMany = 128 * kMiB;
/// Where all scratch is limited, rings of smaller slots have fewer slots instead.
constexpr std::uint32_t kMinSlotBytes = 8 * kKiB;
/// One sender's region of cells. Two ranks send each other a whole message at once: 4 MiB.
constexpr std::uint32_t kCellBytes = 3 * kMiB / 2;
constexpr std::uint32_t kCellBytesOfTwo = 11 * kMiB / 2;
static_assert(kCellBytesOfTwo <= kMaxCellRegion && kCellBytes <= kMaxCellRegion);

/// The rings of all ranks in host memory. GPUs store into the CPU's cache, and load from it what
/// still is there: rings of 24 MiB take 671 us for an allreduce of 16 MiB, of 192 MiB 1258, and of
/// 12 MiB 778, whose tiles are too small (4 x H200).
constexpr std::uint64_t kHostRingBytes = 24 * kMiB;
constexpr std::uint32_t kMinHostSlotBytes = 4 * kKiB;
constexpr std::uint32_t kMinSlots = 4;
/// Scratch that is taken at the beginning, where the rest is taken later: for small calls, and for
/// the first large ones.
constexpr std::uint32_t kFirstChannels = 8;
constexpr std::uint32_t kFirstSlotBytes = 8 * kKiB;
constexpr std::uint32_t kFirstCellBytes = 128 * kKiB;
/// There larger messages than cells hold go by channels soon: bytes cost more than flags.
constexpr std::uint32_t kCellBytesOnHost = kMiB / 2;

/// Scratch of what runs by copies: chunks are chosen for it.
constexpr std::uint64_t kCopyScratch = 64 * kMiB;
/// ... and where other algorithms than what is planned may be asked for, with larger chunks.
constexpr std::uint64_t kAnyCopyScratch = 128 * kMiB;
/// The paper's streams for large messages; of more than 64 MiB we make more, for the scratch.
constexpr std::uint64_t kPublishedChunks = 8;
constexpr std::uint64_t kMaxPublishedChunk = 8 * kMiB;

/// The most that a communicator takes of a relay for its kernels.
constexpr std::uint64_t kRelayMemory = 64 * kMiB;
constexpr std::uint32_t kMinRelaySlotBytes = 4 * kKiB;

/// Messages that plans are asked about, to see whether any goes by lines; bytes.
constexpr std::uint64_t kLineSizes[] = {256 * kKiB, kMiB, 4 * kMiB, 16 * kMiB};

std::uint64_t max_ring_bytes(std::uint32_t ranks) {
  return ranks <= 4 ? kRingBytes : kRingBytesOfMany;
}

std::uint64_t ring_bytes(const ScratchShape& shape) {
  const ScratchLayout layout{shape};
  return layout.bytes() - layout.cells(2, 0, 0);
}

/// Lets the rings of a later communicator have slots as large as there is room for.
void limit_rings(ScratchShape& shape) {
  while (shape.slot_bytes > kMinSlotBytes && ring_bytes(shape) > max_ring_bytes(shape.ranks))
    shape.slot_bytes /= 2;
}

/// Lets a scratch have at most `max_bytes`, unless cells alone take more: slots as large as fit,
/// and half as many of them where they would be small.
void limit_scratch(ScratchShape& shape, std::uint64_t max_bytes) {
  const std::uint64_t others = polypath::scratch_bytes(shape) - ring_bytes(shape);
  const std::uint64_t left = max_bytes - std::min(max_bytes, others);
  const auto slot_bytes = [&] {
    const std::uint64_t slots = std::max<std::uint64_t>(ring_bytes(shape) / kSlotBytes, 1);
    return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(
        left / slots / kScratchGranule * kScratchGranule, kScratchGranule, kSlotBytes));
  };
  if (slot_bytes() < kMinSlotBytes) shape.slots = kMinSlots;
  shape.slot_bytes = slot_bytes();
}

ScratchShape first_shape_of(const ScratchShape& all) {
  ScratchShape first = all;
  first.channels = std::min(all.channels, kFirstChannels);
  first.slots = kMinSlots;
  first.slot_bytes = std::min(all.slot_bytes, kFirstSlotBytes);
  first.cell_bytes = std::min(all.cell_bytes, kFirstCellBytes);
  first.line_bytes = 0;
  return first;
}

KernelFamily family_of(Algorithm algorithm) {
  if (algorithm == Algorithm::cells) return KernelFamily::cells;
  if (algorithm == Algorithm::lines) return KernelFamily::lines;
  return KernelFamily::channels;
}

/// What a rank sends to each other one, about; of a rooted operation as if each were the root.
std::uint64_t bytes_to_each(const CollectiveRequest& request, int stages) {
  const auto ranks = static_cast<std::uint64_t>(request.ranks());
  const std::uint64_t slice = request.bytes() / ranks;
  if (request.by_parts()) return slice;
  if (stages == 1) return request.bytes();
  return request.op == CollectiveOp::allreduce ? 2 * slice : request.bytes() / (ranks - 1);
}

void fit_host_memory(ScratchShape& shape) {
  shape.cell_bytes = kCellBytesOnHost;
  const auto is_too_large = [&] { return ring_bytes(shape) * shape.ranks > kHostRingBytes; };
  while (is_too_large() && shape.slot_bytes > kMinHostSlotBytes) shape.slot_bytes /= 2;
  while (is_too_large() && shape.slots > kMinSlots) shape.slots /= 2;
}

/// A choice that cannot be carried out, on any rank.
struct RefusedChoice : InvalidArgument {
  using InvalidArgument::InvalidArgument;
};

}  // namespace

std::size_t Collectives::ShapeHash::operator()(const Shape& shape) const noexcept {
  const auto small = static_cast<std::uint64_t>(shape.root) << 16 |
                     static_cast<std::uint64_t>(shape.op) << 8 |
                     static_cast<std::uint64_t>(shape.type);
  const auto choice = static_cast<std::uint64_t>(shape.choice);
  const auto limit = static_cast<std::uint64_t>(shape.block_limit);
  const auto paths = static_cast<std::uint64_t>(
      (shape.has_host ? 1 : 0) + (shape.has_relays ? 2 : 0) + (shape.has_scratch ? 4 : 0));
  return (shape.count ^ small << 40 ^ choice << 36 ^ paths << 33 ^ limit << 24) *
         0x9e3779b97f4a7c15;
}

Collectives::Collectives(Communicator& communicator, const CollectivesOptions& options)
    : comm_(communicator),
      options_(options),
      launches_(options.max_plans),
      norm_plans_(options.max_plans) {
  if (comm_.size() > static_cast<int>(kMaxRanks))
    throw NotSupported(
        fmt::format("collectives serve up to {} ranks of a node, not {}", kMaxRanks, comm_.size()));
  // What one rank cannot, none can: each says how many blocks it can run, or why none.
  struct Able {
    std::int32_t blocks = 0;
    std::int32_t is_first = 0;
    std::int32_t follows_load = 0;
    std::int32_t direct_results = 0;
    std::int32_t defers_scratch = 0;
    std::array<char, 240> why{};
  };
  Able local{.follows_load = options_.host_links != nullptr ? 1 : 0,
             .direct_results = options_.direct_results ? 1 : 0,
             .defers_scratch = options_.defers_scratch ? 1 : 0};
  ContextGuard guard(comm_.driver());
  guard.use(comm_.context());
  comm_.barrier_when_idle();  // loading kernels waits for those that run (docs/cuda-notes.md)
  try {
    modules_ = KernelModules::load(comm_.driver(), comm_.context(), {options_.order, false});
    int multiprocessors = 0;
    POLYPATH_CHECK(comm_.driver(),
                   device_get_attribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                                        comm_.gpu()));
    const int each = modules_->blocks_a_multiprocessor();
    const int spared = options_.reserved_sms * each;
    order_ = std::make_unique<CallOrder>(comm_.driver(), comm_.context());
    blocks_ =
        std::make_unique<BlockShare>(comm_.context(), multiprocessors * each, options_.max_blocks,
                                     spared, [this] { return in_flight(); });
    local.blocks = blocks_->blocks();
    local.is_first = blocks_->is_first() ? 1 : 0;
  } catch (const std::exception& error) {
    std::strncpy(local.why.data(), error.what(), local.why.size() - 1);
  }
  std::vector<Able> all(static_cast<std::size_t>(comm_.size()));
  comm_.exchange(std::as_bytes(std::span(&local, 1)), std::as_writable_bytes(std::span(all)));
  int blocks = options_.max_blocks;
  bool is_first = true;
  bool defers = comm_.has_peer_access();
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].blocks < 1)
      throw NotSupported(fmt::format("rank {}: {}", rank, all[rank].why.data()));
    blocks = std::min(blocks, all[rank].blocks);
    is_first = is_first && all[rank].is_first != 0;
    has_windows_ = has_windows_ || all[rank].direct_results != 0;
    defers = defers && all[rank].defers_scratch != 0;
  }
  if (!comm_.has_peer_access()) blocks = std::min(blocks, kMaxHostBlocks);
  blocks_->keep(blocks);
  shape_ = {static_cast<std::uint32_t>(comm_.size()), static_cast<std::uint32_t>(blocks), kSlots,
            kSlotBytes, comm_.size() == 2 ? kCellBytesOfTwo : kCellBytes};
  basis_ = share_plan_inputs(comm_, options_.tuned);
  options_.tuned = {};
  if (comm_.size() == 1) return;
  agree_on_relays();
  prepare_scratch(is_first, defers);
  if (!relays_.empty()) reserve_relays();
  waits_ = comm_.register_waits(
      1, [](const wait_error& status, std::uint32_t) { return mismatch_text(status); });
  if (is_first || options_.reserved_sms == 0) prepare_lines(defers);
  if (defers) rest_ = &comm_.defer(polypath::scratch_bytes(shape_) + line_memory_bytes(shape_));
  // Where communicators share a GPU, those after the first have few blocks, and are many: pinned
  // memory and scratch next to the kernels are the first one's.
  if (is_first || options_.reserved_sms == 0 || options_.copies) prepare_copies();
  const bool follows_host = host_bytes() > 0 && all.front().follows_load != 0;
  const RelayParts relays{relay_load_ ? &*relay_load_ : nullptr, relay_memory_,
                          relay_times_ ? &*relay_times_ : nullptr};
  if (follows_host || relays.memory != nullptr || rest_ != nullptr)
    levels_.emplace(comm_.levels(), follows_host, follows_host ? options_.host_links : nullptr,
                    relays, rest_);
  comm_.set_calls_in_flight([this] { return in_flight(); });
}

Collectives::~Collectives() {  // the communicator frees the scratch
  comm_.set_calls_in_flight(nullptr);
  if (in_flight()) {
    comm_.abort(fmt::format("rank {} ended its collectives while one was under way", comm_.rank()));
    const auto deadline = std::chrono::steady_clock::now() + comm_.time_limit();
    constexpr std::chrono::milliseconds kPause{1};
    while (in_flight() && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(kPause);
  }
  // Its thread may fill memory after kernels that have just been ended.
  if (rest_ != nullptr) rest_->stop();
  if (relay_memory_ != nullptr) relay_memory_->stop();
  if (waits_ != 0) comm_.unregister_waits(waits_);
}

void Collectives::prepare_scratch(bool is_first, bool defers) {
  if (!comm_.has_peer_access())
    fit_host_memory(shape_);
  else if (!defers && !is_first)
    limit_rings(shape_);
  first_shape_ = shape_;
  if (defers) {
    first_shape_ = first_shape_of(shape_);
    limit_scratch(shape_, max_ring_bytes(shape_.ranks) - polypath::scratch_bytes(first_shape_));
  }
  scratch_ = comm_.alloc(polypath::scratch_bytes(first_shape_), SymmetricUse::direct);
  if (!comm_.has_peer_access())
    counts_memory_ = comm_.alloc(ScratchLayout{shape_}.counts_bytes(), SymmetricUse::local);
}

std::uint64_t Collectives::scratch_bytes() const noexcept {
  return scratch_.bytes() + lines_.bytes() + (rest_ != nullptr ? rest_->bytes_taken() : 0) +
         (runner_ ? runner_->scratch_bytes() : 0);
}

std::uint64_t Collectives::max_kernel_scratch_bytes() const noexcept {
  return scratch_.bytes() + (rest_ != nullptr ? polypath::scratch_bytes(shape_) : 0);
}

bool Collectives::in_flight() const { return order_ != nullptr && order_->in_flight(); }

CollectivePlan Collectives::plan(const CollectiveCall& call, AlgorithmOverride choice) const {
  require_root(call, comm_.rank(), comm_.size());
  return make_launch(call, choice, /*explain=*/true).plan;
}

const Collectives::Launch& Collectives::launch_of(const CollectiveCall& call,
                                                  AlgorithmOverride choice, const OpenPaths& open) {
  const Shape shape{call.count,  call.op,      call.type,       has_root(call.op) ? call.root : 0,
                    choice,      block_limit_, open.host_links, open.relays,
                    open.scratch};
  if (const auto* const known = launches_.find(shape)) return *known;
  Launch launch = make_launch(call, choice, /*explain=*/false, open);
  if (launch.plan.algorithm == Algorithm::relayed) {
    relay_memory_->want();
    if (choice != AlgorithmOverride::planned) wait_relays();
  }
  ++counts_.plans;
  const std::size_t steps = launch.schedule ? launch.schedule->steps.size() : 0;
  launches_.put(shape, std::move(launch), 1 + steps / kStepsOfAWeight);
  return *launches_.find(shape);
}

CollectiveRequest Collectives::request_of(const CollectiveCall& call) const {
  CollectiveRequest request;
  request.op = call.op;
  request.type = call.type;
  request.operation = call.operation;
  request.order = options_.order;
  request.count = call.count;
  request.root = has_root(call.op) ? call.root : 0;
  request.gpus = basis_.gpus;
  request.relays = relays_;
  return request;
}

void Collectives::use_tuned(std::vector<TunedCollective> tuned) {
  basis_.tuned = std::move(tuned);
  launches_.clear();
  norm_plans_.clear();
}

void Collectives::set_trial_variant(TunedCollective way) {
  tried_.assign(1, std::move(way));
  launches_.erase_if([](const Shape& shape) { return shape.choice == AlgorithmOverride::tried; });
}

CollectivePlan Collectives::make_plan(const CollectiveRequest& request,
                                      const CollectiveOptions& options,
                                      AlgorithmOverride choice) const {
  return plan_tuned_collective(basis_.node, request, options,
                               choice == AlgorithmOverride::tried ? tried_ : basis_.tuned);
}

KernelLimits Collectives::limits_of(const ScratchShape& shape) const {
  const int blocks = blocks_->blocks();
  return {.blocks = block_limit_ > 0 ? std::min(blocks, block_limit_) : blocks,
          .channels = static_cast<int>(shape.channels),
          .tile_bytes = shape.slot_bytes,
          .relayed_tile_bytes = std::min(shape.slot_bytes, relay_slot_bytes_),
          .lag = static_cast<int>(shape.slots) - 2};
}

CollectiveOptions Collectives::options_of(const CollectiveRequest& request,
                                          AlgorithmOverride choice) const {
  CollectiveOptions options;
  options.limits = limits_of(shape_);
  options.scratch_bytes =
      runner_ ? std::min(kCopyScratch, runner_->scratch_bytes()) : kMixedScratch;
  options.host_bytes = runner_ ? runner_->host_bytes() : kCopyHost;
  options.lines = shape_.line_bytes != 0;
  options.relayed_kernels = relay_memory_ != nullptr && (choice == AlgorithmOverride::planned ||
                                                         choice == AlgorithmOverride::relayed);
  options.table = copy_costs_.get();
  switch (choice) {
    case AlgorithmOverride::planned:
    case AlgorithmOverride::alone:
    case AlgorithmOverride::tried: break;
    case AlgorithmOverride::kernels: options.copies = false; break;
    case AlgorithmOverride::uneven: options.copies = options.lines = false; break;
    case AlgorithmOverride::lines: options.algorithm = Algorithm::lines; break;
    case AlgorithmOverride::relayed: options.algorithm = Algorithm::relayed; break;
    case AlgorithmOverride::pairwise: options.algorithm = Algorithm::pairwise; break;
    case AlgorithmOverride::published:
      options.lanes = 1;
      options.chunk_bytes =
          std::clamp<std::uint64_t>(request.bytes() / kPublishedChunks, 1, kMaxPublishedChunk);
      options.algorithm = Algorithm::hierarchical;
      break;
    case AlgorithmOverride::hierarchical: options.algorithm = Algorithm::hierarchical; break;
    case AlgorithmOverride::ring: options.algorithm = Algorithm::ring; break;
    case AlgorithmOverride::host: options.algorithm = Algorithm::mixed; break;
    case AlgorithmOverride::host_trees: options.algorithm = Algorithm::host_trees; break;
  }
  return options;
}

void Collectives::prepare_lines(bool defers) {
  if (!may_have_whole_lines(comm_.driver())) return;
  const auto goes_by_lines = [&](std::uint64_t bytes) {
    const CollectiveRequest request = request_of({.count = bytes / size_of(DataType::float32)});
    CollectiveOptions options = options_of(request, AlgorithmOverride::kernels);
    options.lines = true;
    options.explain = false;
    return make_plan(request, options, AlgorithmOverride::planned).algorithm == Algorithm::lines;
  };
  if (std::ranges::none_of(kLineSizes, goes_by_lines)) return;
  std::vector<std::pair<int, int>> paths;
  for (int from = 0; from < comm_.size(); ++from)
    for (int to = 0; to < comm_.size(); ++to)
      if (from != to) paths.emplace_back(from, to);
  ScratchShape shape = shape_;
  const std::uint64_t rows = (max_line_piece(comm_.size()) + kLineRowData - 1) / kLineRowData;
  shape.line_bytes = static_cast<std::uint32_t>(rows * kLineRowBytes);
  try {  // what one rank cannot, none does
    probe_ll128(comm_, paths, ProbeCall::beside_others);
    if (!defers) lines_ = comm_.alloc(line_memory_bytes(shape), SymmetricUse::direct);
    shape_ = shape;
    if (!defers) first_shape_ = shape;
  } catch (const Error& error) {
    comm_.check();
    log_info("collectives go without lines: {}", error.what());
  }
}

void Collectives::agree_on_relays() {
  const std::vector<int> idle = idle_gpus(basis_.node, basis_.gpus);
  CollectiveRequest request = request_of({});
  request.relays = idle;
  const std::vector<int> candidates = usable_relays(basis_.node, request);
  if (candidates.empty()) return;
  // By PCI address, since processes may number GPUs differently, or not see some.
  std::vector<std::int32_t> local(candidates.size(), -1);
  for (std::size_t i = 0; i < candidates.size() && options_.relays.devices != nullptr; ++i) {
    const Gpu& candidate = basis_.node.gpus[static_cast<std::size_t>(candidates[i])];
    const auto& own = comm_.node().gpus;
    const auto own_gpu = std::ranges::find_if(own, [&](const Gpu& gpu) {
      return candidate.pci.empty() ? &gpu - own.data() == candidates[i] : gpu.pci == candidate.pci;
    });
    if (own_gpu == own.end()) continue;
    const auto number = static_cast<int>(own_gpu - own.begin());
    try {
      if (options_.relays.devices->may_stage(number, kRelayMemory) == StagingReason::allowed)
        local[i] = number;
    } catch (const Error& error) {
      log_info("gpu{} is no relay of collectives: {}", number, error.what());
    }
  }
  std::vector<std::int32_t> all(local.size() * static_cast<std::size_t>(comm_.size()));
  comm_.exchange(std::as_bytes(std::span(local)), std::as_writable_bytes(std::span(all)));
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    bool is_for_all = true;
    for (std::size_t at = i; at < all.size(); at += local.size())
      is_for_all = is_for_all && all[at] >= 0;
    if (!is_for_all) continue;
    relays_.push_back(candidates[i]);
    own_relays_.push_back(local[i]);
  }
}

void Collectives::reserve_relays() {
  if (!comm_.has_peer_access()) return;
  std::vector<int> gpus = own_relays_;
  gpus.resize(std::min<std::size_t>(gpus.size(), kMaxRelays));
  RelayLayout layout{
      shape_, {shape_.ranks, static_cast<std::uint32_t>(gpus.size())}, shape_.slot_bytes};
  while (layout.bytes() > kRelayMemory && layout.slot_bytes / 2 >= kMinRelaySlotBytes)
    layout.slot_bytes = layout.slot_bytes / 2 / kScratchGranule * kScratchGranule;
  relay_slot_bytes_ = layout.slot_bytes;
  relay_memory_ = comm_.reserve_relays(*options_.relays.devices, std::move(gpus), layout.bytes(),
                                       2 * shape_.channels * sizeof(std::uint32_t));
  if (relay_memory_ == nullptr) return;
  relay_load_.emplace(options_.relays.load, comm_, own_relays_,
                      static_cast<std::uintptr_t>(scratch_.address(0)));
  if (!relay_load_->is_known()) return;
  try {
    relay_times_.emplace(comm_.driver(), comm_.context());
  } catch (const Error& error) {
    log_info("rank {} does not time idle GPUs: {}", comm_.rank(), error.what());
  }
}

void Collectives::wait_relays() {
  if (relay_memory_ != nullptr) relay_memory_->wait();
}

void Collectives::prepare_copies() {
  copy_costs_ = CopyCostTable::shared(basis_.node, basis_.gpus);
  std::uint64_t scratch = options_.copies ? kAnyCopyScratch : 0;
  std::uint64_t host = options_.copies ? kCopyHost : 0;
  const std::string ranks = collective_class(basis_.node, basis_.gpus);
  for (const TunedCollective& entry : basis_.tuned)
    if (entry.ranks == ranks && entry.way.chunk_bytes > 0)
      scratch = std::max(scratch, kCopyScratch);
  for (const std::uint64_t bytes : {16 * kMiB, 256 * kMiB}) {
    CollectiveRequest request = request_of({.count = bytes / size_of(DataType::float32)});
    request.relays.clear();
    CollectiveOptions options = options_of(request, AlgorithmOverride::planned);
    options.scratch_bytes = kCopyScratch;
    options.explain = false;
    const Algorithm algorithm = make_plan(request, options, AlgorithmOverride::planned).algorithm;
    if (runs_by_kernels(algorithm)) continue;
    const bool is_part = algorithm == Algorithm::mixed;
    scratch = std::max(scratch, is_part ? kMixedScratch : kCopyScratch);
    if (uses_host(algorithm)) host = std::max(host, is_part ? kMixedHost : kCopyHost);
  }
  if (scratch == 0) return;
  runner_ = std::make_unique<ScheduleRunner>(comm_, *modules_, scratch, host);
  copy_costs_->fill_allreduce(options_of({}, AlgorithmOverride::planned), options_.order);
}

Collectives::Launch Collectives::make_launch(const CollectiveCall& call, AlgorithmOverride choice,
                                             bool explain, const OpenPaths& open) const {
  CollectiveRequest request = request_of(call);
  if (choice == AlgorithmOverride::alone || !open.relays) request.relays.clear();
  const bool is_free = choice == AlgorithmOverride::planned || choice == AlgorithmOverride::alone ||
                       choice == AlgorithmOverride::kernels ||
                       choice == AlgorithmOverride::uneven || choice == AlgorithmOverride::tried;
  const bool needs_copies =
      !is_free && choice != AlgorithmOverride::lines && choice != AlgorithmOverride::relayed;
  CollectiveOptions options = options_of(request, choice);
  options.explain = explain;
  if (!open.scratch) {
    leave_out_rest(request, choice, options);
    options.relayed_kernels = false;  // slots on relays go with the flags of one scratch
  }
  if (runner_ == nullptr) {
    if (needs_copies)
      throw InvalidArgument(
          fmt::format("rank {}: {} runs by copies, and no scratch was taken for them", comm_.rank(),
                      to_string(choice)));
    options.copies = false;
  }
  Launch launch;
  launch.choice = choice;
  launch.open = open;
  launch.plan = open.host_links ? make_plan(request, options, choice)
                                : plan_without_host(basis_.node, request, options, basis_.tuned);
  if (launch.plan.algorithm == Algorithm::relayed) {
    CollectiveRequest without = request;
    without.relays.clear();
    launch.without_us =
        make_plan(without, options_of(without, AlgorithmOverride::alone), choice).predicted_us;
  }
  if (launch.plan.algorithm != Algorithm::none && !runs_by_kernels(launch.plan.algorithm)) {
    CollectiveSchedule schedule = make_collective_schedule(basis_.node, launch.plan);
    if (runner_->can_run(schedule)) {
      launch.program = program_of(schedule, comm_.rank());
      launch.how = hash_with(static_cast<std::uint32_t>(launch.plan.algorithm),
                             schedule.steps.size() << 32 | launch.plan.host_count);
      launch.schedule = std::move(schedule);
      if (launch.plan.algorithm == Algorithm::mixed) {
        CollectiveRequest first = request;
        first.count -= launch.plan.host_count;
        set_kernel(launch, first, explain);
        launch.traffic = {
            first.bytes(), request.bytes() - first.bytes(),
            static_cast<int>(launch.program.steps.size()), launch.plan.predicted_us,
            levels_ && levels_->follows_host()
                ? plan_without_host(basis_.node, request, options, basis_.tuned).predicted_us
                : 0};
      }
      return launch;
    }
    if (!is_free)
      throw InvalidArgument(fmt::format(
          "rank {}: {} needs {} bytes of scratch and {} of host memory, and there are {} and {}",
          comm_.rank(), to_string(choice), schedule.scratch_bytes, schedule.host_bytes,
          runner_->scratch_bytes(), runner_->host_bytes()));
    options.copies = false;
    launch.plan = make_plan(request, options, choice);
  }
  set_kernel(launch, request, explain);
  return launch;
}

void Collectives::leave_out_rest(const CollectiveRequest& request, AlgorithmOverride choice,
                                 CollectiveOptions& options) const {
  // Copies sum in another order, maybe: the bits are those of the call with all scratch.
  if (runner_ != nullptr && options.algorithm == std::nullopt && options.copies) {
    CollectiveOptions quick = options;
    quick.explain = false;
    options.copies = !runs_by_kernels(make_plan(request, quick, choice).algorithm);
  }
  options.lines = false;
  if (options.algorithm != Algorithm::lines && options.algorithm != Algorithm::relayed) return;
  options.algorithm.reset();
  options.copies = false;
}

bool Collectives::has_room(Algorithm algorithm, const CollectiveRequest& request, int stages,
                           const ScratchShape& shape) const {
  if (algorithm == Algorithm::cells)
    return request.count <= max_by_cells(shape, request.op, request.type, stages);
  if (algorithm == Algorithm::lines)
    return request.count <= max_by_lines(shape, request.op, request.type, stages);
  return true;
}

bool Collectives::needs_rest(const Launch& launch, const CollectiveRequest& request,
                             int stages) const {
  if (rest_ == nullptr || !launch.open.scratch) return false;
  // Small calls stay in what was taken first, where no change of scratch concerns them.
  return launch.family != KernelFamily::cells ||
         !has_room(launch.plan.algorithm, request, stages, first_shape_);
}

void Collectives::set_kernel(Launch& launch, const CollectiveRequest& request, bool explain) const {
  KernelPlan kernel = launch.plan.kernel.value_or(
      KernelPlan{.blocks = 1, .slot_bytes = kScratchGranule, .stages = 1, .lag = kMinLag});
  if (!has_room(launch.plan.algorithm, request, kernel.stages, shape_of(launch.open))) {
    CollectiveOptions options = options_of(request, AlgorithmOverride::kernels);
    options.limits = limits_of(shape_of(launch.open));
    options.algorithm = Algorithm::flat;  // more than the scratch holds
    options.explain = explain;
    launch.plan = plan_collective(basis_.node, request, options);
    kernel = launch.plan.kernel.value();
  }
  if (!launch.open.scratch && launch.plan.kernel) {
    // As planned with all scratch, so that the order of sums is the same.
    const bool is_part = launch.plan.algorithm == Algorithm::mixed;
    KernelCost cost =
        kernel_cost(basis_.node, request, is_part ? Algorithm::flat : launch.plan.algorithm, kernel,
                    limits_of(first_shape_));
    kernel = cost.kernel;
    if (!is_part) run_by(basis_.node, launch.plan, std::move(cost));
  }
  launch.family = family_of(launch.plan.algorithm);
  launch.blocks = static_cast<unsigned>(kernel.blocks);
  launch.uses_rest = needs_rest(launch, request, kernel.stages);

  CollectiveArgs& args = launch.args = first_args();
  args.op = request.op;
  args.type = request.type;
  args.root = static_cast<std::uint8_t>(request.root);
  args.stages = static_cast<std::uint8_t>(kernel.stages);
  args.lag = static_cast<std::uint8_t>(kernel.lag);
  args.tile_bytes = static_cast<std::uint32_t>(kernel.slot_bytes);
  args.channels = launch.blocks;
  args.count = request.count;
  const auto family = static_cast<std::uint64_t>(launch.family);
  const bool is_relayed = launch.plan.algorithm == Algorithm::relayed;
  const std::uint64_t paths =
      (launch.uses_rest ? std::uint64_t{1} << 40 : 0) | (is_relayed ? std::uint64_t{1} << 41 : 0);
  launch.how = hash_with(hash_with(launch.how, paths | family << 32 | launch.blocks),
                         std::uint64_t{args.tile_bytes} << 32 | args.stages | args.lag << 8U);
}

CollectiveArgs Collectives::first_args() const {
  CollectiveArgs args{};
  args.rank = static_cast<std::uint8_t>(comm_.rank());
  args.shape = first_shape_;
  args.calls = waits_;
  for (int rank = 0; rank < comm_.size() && scratch_; ++rank)
    args.scratch[rank] = std::bit_cast<unsigned char*>(scratch_.address(rank));
  if (scratch_)
    args.counts =
        std::bit_cast<unsigned char*>((counts_memory_ ? counts_memory_ : scratch_).local());
  for (int rank = 0; rank < comm_.size() && lines_; ++rank)
    args.lines[rank] = std::bit_cast<unsigned char*>(lines_.address(rank));
  return args;
}

void Collectives::use_rest(CollectiveArgs& args) const {
  const SymmetricMemory& memory = rest_->memory();
  args.shape = shape_;
  for (int rank = 0; rank < comm_.size(); ++rank) {
    args.scratch[rank] = std::bit_cast<unsigned char*>(memory.address(rank));
    if (shape_.line_bytes != 0)
      args.lines[rank] = args.scratch[rank] + polypath::scratch_bytes(shape_);
  }
  args.counts = std::bit_cast<unsigned char*>(memory.local());
}

void Collectives::require_stream(CUstream stream) {
  if (stream == checked_stream_ || is_special_stream(stream)) return;
  const CudaDriver& driver = comm_.driver();
  CUcontext stream_context = nullptr;
  POLYPATH_CHECK(driver, stream_get_ctx(stream, &stream_context));
  if (stream_context != comm_.context()) {
    // A part of the GPU's multiprocessors has another context (cuGreenCtxStreamCreate).
    const CurrentContext current(driver, stream_context);
    CUdevice gpu = 0;
    POLYPATH_CHECK(driver, ctx_get_device(&gpu));
    if (gpu != comm_.gpu())
      throw InvalidArgument(fmt::format("rank {}: stream is one of gpu{}, and the rank's is gpu{}",
                                        comm_.rank(), gpu, comm_.gpu()));
  }
  checked_stream_ = stream;
}

void Collectives::launch_kernel(const Launch& launch, const CollectiveCall& call, unsigned blocks,
                                CUstream stream, bool is_captured) {
  UnevenArgs args{launch.args, call.parts.has_value(), {}};
  if (call.parts)
    for (std::size_t rank = 0; rank < args.shape.ranks; ++rank)
      args.begins[rank + 1] = args.begins[rank] + (*call.parts)[rank] * size_of(call.type);
  args.reduction = call.operation;
  if (launch.uses_rest) use_rest(args);
  args.in = std::bit_cast<const void*>(call.send);
  args.out = std::bit_cast<void*>(call.recv);
  if (launch.plan.algorithm == Algorithm::relayed) use_relays(launch, args);
  if (launch.family == KernelFamily::channels) {
    blocks = blocks_for_channels(launch.args.channels, blocks);
    const std::uint64_t received = operand_bytes(call, comm_.rank(), comm_.size()).received;
    args.has_windows = has_windows_ ? 1 : 0;
    if (options_.direct_results && set_result_windows(args, comm_, received)) ++counts_.direct;
  }
  // Channels that take turns say nothing of their links.
  if (args.relay_count > 0 && relay_times_ && !is_captured && blocks == args.channels) {
    auto* const ns = static_cast<std::uint32_t*>(relay_memory_->pinned());
    if (relay_times_->begin(relay_load_->now_ns(), {ns, std::size_t{2} * args.channels}))
      args.channel_ns = ns;
  }
  launch_marked(launch.family, args, blocks, call, launch.how, stream, is_captured);
  if (args.channel_ns == nullptr) return;
  const UnevenPart part = part_of(args);
  const ChannelWays ways = ways_of(args);
  relay_times_->issued(stream, ways,
                       ways.shares(channel_granules(part.pieces.longest), args.channels,
                                   args.tile_bytes / kChannelGranule, part.roles.hops()));
}

void Collectives::use_relays(const Launch& launch, UnevenArgs& args) {
  args.relay_count = static_cast<std::uint32_t>(relay_memory_->size());
  args.relay_slot_bytes = relay_slot_bytes_;
  for (std::size_t relay = 0; relay < relay_memory_->size(); ++relay)
    args.relays[relay] = std::bit_cast<unsigned char*>(relay_memory_->address(relay));
  if (!relay_load_->is_known()) return;
  RelayLoad::Traffic traffic;
  traffic.times = {launch.plan.predicted_us, launch.without_us};
  const std::uint64_t sent = bytes_to_each(launch.plan.request, args.stages);
  const auto part =
      static_cast<std::uint64_t>(static_cast<double>(sent) * launch.plan.relays.front().share);
  for (int rank = 0; rank < comm_.size(); ++rank) {
    if (rank == comm_.rank()) continue;
    traffic.direct_bytes += sent - part * relay_memory_->size();
    for (std::size_t relay = 0; relay < relay_memory_->size(); ++relay)
      traffic.parts.push_back({static_cast<int>(relay), rank, part});
  }
  relay_load_->note(traffic);
}

void Collectives::launch_meeting(const Launch& launch, const CollectiveCall& call, CUstream stream,
                                 bool is_captured) const {
  UnevenArgs args{first_args(), false, {}};
  args.op = CollectiveOp::all_gather;  // of bytes: which one makes no difference without elements
  args.tile_bytes = kScratchGranule;
  args.lag = kMinLag;
  args.stages = 1;
  args.channels = 1;
  launch_marked(KernelFamily::channels, args, 1, call, launch.how, stream, is_captured);
}

void Collectives::launch_marked(KernelFamily family, UnevenArgs& args, unsigned blocks,
                                const CollectiveCall& call, std::uint32_t how, CUstream stream,
                                bool is_captured) const {
  args.mark = mark_of(call, hash_with(hash_with(how, call.within), skipped_));
  args.wait_ctx = comm_.wait_ctx();
  args.wait_ctx.kernel = number_;
  const KernelModules& modules = args.is_uneven ? *uneven_modules_ : *modules_;
  modules.launch(family, args, blocks, stream, is_captured);
}

void Collectives::load_uneven(CUstream stream) {
  if (uneven_modules_ != nullptr || comm_.size() == 1) return;
  ContextGuard guard(comm_.driver());
  guard.use(comm_.context());
  if (order_->capture_of(stream) != 0)
    throw InvalidArgument(
        fmt::format("rank {}: stream is in capture, and the first call of uneven parts loads "
                    "kernels: make one before, whose counts may be 0",
                    comm_.rank()));
  std::array<char, 256> why{};
  std::shared_ptr<const KernelModules> modules;
  comm_.barrier_when_idle();  // as when the others were loaded
  try {
    modules = KernelModules::load(comm_.driver(), comm_.context(), {options_.order, true});
    if (modules->blocks_a_multiprocessor() < modules_->blocks_a_multiprocessor())
      throw NotSupported("fewer blocks of these kernels run at once than of others");
  } catch (const std::exception& error) {
    std::strncpy(why.data(), error.what(), why.size() - 1);
  }
  std::vector<std::array<char, 256>> all(static_cast<std::size_t>(comm_.size()));
  comm_.exchange(std::as_bytes(std::span(why)), std::as_writable_bytes(std::span(all)));
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank].front() != 0)
      throw NotSupported(
          fmt::format("rank {}: kernels of uneven parts: {}", rank, all[rank].data()));
  uneven_modules_ = std::move(modules);
}

const Collectives::Launch& Collectives::launch_to_run(const CollectiveCall& call,
                                                      AlgorithmOverride choice, bool is_captured) {
  const Launch* launch = &launch_of(call, choice);
  if (!is_captured) return *launch;
  // A graph keeps its plan: that of the level before.
  if (launch->plan.algorithm == Algorithm::relayed && choice == AlgorithmOverride::planned &&
      !levels_->now().relays)
    launch = &launch_of(call, choice, {.relays = false});
  // In a graph copies have more to wait for, so that nothing is gained next to a kernel.
  if (launch->plan.algorithm != Algorithm::mixed) return *launch;
  return launch_of(call, AlgorithmOverride::kernels);
}

const Collectives::Launch& Collectives::launch_by_level(const Launch& planned,
                                                        const CollectiveCall& call,
                                                        CUstream stream) {
  constexpr OpenPaths kWithoutRelays{.relays = false};
  const bool is_relayed = planned.plan.algorithm == Algorithm::relayed;
  PathTraffic traffic;
  if (is_relayed) {
    traffic.relayed_us = planned.plan.predicted_us;
    traffic.without_relays_us = planned.without_us;
  }
  const bool goes_without = is_relayed && !levels_->now().relays;
  const Launch& expected =
      goes_without ? launch_of(call, AlgorithmOverride::planned, kWithoutRelays) : planned;
  if (expected.plan.algorithm == Algorithm::mixed && levels_->follows_host())
    traffic.host = &expected.traffic;
  const OpenPaths open = levels_->begin_call(traffic, stream);
  const bool has_relays = is_relayed && open.relays;
  if (has_relays) return launch_of(call, AlgorithmOverride::planned);
  const Launch* launch = &planned;
  if (is_relayed) {
    ++counts_.without_relays;
    launch = &launch_of(call, AlgorithmOverride::planned, kWithoutRelays);
  }
  if (launch->plan.algorithm != Algorithm::mixed || open.host_links) return *launch;
  ++counts_.changed_by_load;
  return launch_of(call, AlgorithmOverride::planned, {open.host_links, has_relays});
}

bool Collectives::may_use_rest(bool is_counted, bool is_captured) {
  if (levels_->now().scratch) return true;
  rest_->want();
  // A graph keeps the scratch that it was captured with.
  const bool may_use = !is_counted && !is_captured && levels_->begin_call().scratch;
  counts_.by_first_scratch += may_use ? 0 : 1;
  return may_use;
}

const Collectives::Launch& Collectives::launch_by_scratch(const Launch& launch,
                                                          const CollectiveCall& call,
                                                          bool is_counted, bool is_captured) {
  if (!launch.uses_rest || may_use_rest(is_counted, is_captured)) return launch;
  OpenPaths open = launch.open;
  open.scratch = false;
  return launch_of(call, launch.choice, open);
}

void Collectives::run(const CollectiveCall& call, CUstream stream, AlgorithmOverride choice) {
  run_counted(
      call, stream, [] {},
      [&] { run_alone(call, stream, call.parts ? AlgorithmOverride::uneven : choice); });
}

void Collectives::run_counted(const CollectiveCall& call, CUstream stream,
                              const std::function<void()>& require,
                              const std::function<void()>& issue) {
  comm_.check();
  // What another rank's call says alike is refused, and counts for nothing but the marks.
  ++skipped_;
  require_alike(call, comm_.rank(), comm_.size());
  require();
  if (options_.check) compare_calls(comm_, call, number_);
  if (call.parts) load_uneven(stream);
  ++number_;
  if (call.count == 0) return;
  try {
    issue();
    --skipped_;
  } catch (const RefusedChoice&) {
    throw;
  } catch (const RefusedBuffers& error) {
    if (!options_.retries_buffers) abort_alone(error);
    --skipped_;
    --number_;
    throw;
  } catch (const std::exception& error) {
    abort_alone(error);
    throw;
  }
}

void Collectives::abort_alone(const std::exception& error) {
  // The others' calls would meet the next one of this rank.
  if (comm_.size() > 1)
    comm_.abort(fmt::format("rank {} could not issue its part of call {}: {}", comm_.rank(),
                            number_, error.what()));
}

void Collectives::run_alone(const CollectiveCall& call, CUstream stream, AlgorithmOverride choice) {
  const CudaDriver& driver = comm_.driver();
  require_of_buffers(
      [&] { require_buffers(driver, call, {comm_.rank(), comm_.size(), comm_.gpu()}); });
  ContextGuard guard(driver);
  guard.use(comm_.context());
  require_stream(stream);
  if (comm_.size() == 1) {
    ++counts_.copies;
    counts_.uneven += call.parts ? 1 : 0;
    if (call.send != call.recv)
      POLYPATH_CHECK(driver, memcpy_async(call.recv, call.send, bytes_of(call), stream));
    return;
  }
  const std::uint64_t capture = order_->capture_of(stream);
  if (capture != 0) comm_.note_uncounted_waits();
  const Launch* planned = nullptr;
  try {
    planned = &launch_to_run(call, choice, capture != 0);
  } catch (const InvalidArgument& error) {  // plans are the same on all ranks
    throw RefusedChoice(error.what());
  }
  if (planned->schedule)
    require_of_buffers([&] { require_parts_apart(call, comm_.rank(), comm_.size()); });
  comm_.begin_call();  // and no earlier: a call that is refused may be made once more
  const Algorithm algorithm = planned->plan.algorithm;
  const bool has_levels = levels_ && choice == AlgorithmOverride::planned && capture == 0 &&
                          (algorithm == Algorithm::relayed ||
                           (algorithm == Algorithm::mixed && levels_->follows_host()));
  const Launch& launch =
      launch_by_scratch(has_levels ? launch_by_level(*planned, call, stream) : *planned, call,
                        has_levels, capture != 0);
  issue(launch, call, stream, capture);
  count(launch);
  if (call.parts) ++counts_.uneven;
}

void Collectives::issue(const Launch& launch, const CollectiveCall& call, CUstream stream,
                        std::uint64_t capture) {
  // A kernel that only compares calls has one block, which is reserved.
  const bool has_kernel = !launch.schedule || launch.plan.algorithm == Algorithm::mixed;
  BlockShare::Use use =
      blocks_->begin(has_kernel ? static_cast<int>(launch.blocks) : 1, capture != 0);
  order_->before(stream, capture);
  const ScheduleRunner::Call buffers{call.operation, call.send, call.recv};
  if (launch.plan.algorithm == Algorithm::mixed) {
    const std::uint64_t first = launch.args.count * size_of(call.type);
    const auto noted = levels_ ? levels_->issue(launch.traffic, stream) : nullptr;
    runner_->run(*launch.schedule, launch.program,
                 {call.operation, call.send + first, call.recv + first}, stream, [&] {
                   launch_kernel(launch, call, use.blocks(), stream, false);
                   if (noted != nullptr) noted->direct_issued();
                 });
    if (noted != nullptr) noted->all_issued();
  } else if (launch.schedule && capture != 0) {
    runner_->capture(*launch.schedule, launch.program, buffers, stream,
                     [&] { launch_meeting(launch, call, stream, true); });
  } else if (launch.schedule) {
    runner_->run(*launch.schedule, launch.program, buffers, stream,
                 [&] { launch_meeting(launch, call, stream, false); });
  } else {
    launch_kernel(launch, call, use.blocks(), stream, capture != 0);
  }
  order_->behind(stream, capture);
  use.done();
  if (use.blocks() < launch.blocks && has_kernel) ++counts_.fewer_blocks;
}

void Collectives::count(const Launch& launch) {
  switch (launch.plan.algorithm) {
    case Algorithm::cells: ++counts_.cells; break;
    case Algorithm::lines: ++counts_.lines; break;
    case Algorithm::none:
    case Algorithm::flat: ++counts_.channels; break;
    case Algorithm::pairwise: ++counts_.pairwise; break;
    case Algorithm::relayed:
      ++counts_.channels;
      ++counts_.relayed;
      break;
    case Algorithm::hierarchical: ++counts_.hierarchical; break;
    case Algorithm::ring: ++counts_.ring; break;
    case Algorithm::host_trees: ++counts_.host_trees; break;
    case Algorithm::mixed: ++counts_.mixed; break;
  }
}

}  // namespace polypath
