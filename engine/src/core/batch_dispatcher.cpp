#include "core/batch_dispatcher.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>

#include "base/log.hpp"
#include "base/units.hpp"
#include "driver/check.hpp"
#include "exec/relaxed_capture.hpp"
#include "plan/batch_model.hpp"

namespace polypath {
namespace {

// Groups of entries that are none:
constexpr int kNone = -1;    // of zero bytes
constexpr int kNative = -2;  // known to go natively
constexpr int kLarge = -3;   // transfers of their own
constexpr int kMaxGroups = 64;

/// Thread blocks have 16 warps. Each copies at least kEntriesATeam entries of the table, if there
/// are enough bytes: they end at about the same time then.
constexpr std::uint64_t kTeams = kCopyBlocksThreads / 32;
constexpr std::uint64_t kEntriesATeam = 8;
/// Bytes of one entry: what a warp has in flight, and a size that keeps the table small.
constexpr std::uint64_t kMinPiece = 4 * kKiB;
constexpr std::uint64_t kMaxPiece = 32 * kKiB;

/// A batch by kernels must be faster by a tenth: they take SMs.
constexpr double kMinGain = 0.9;

/// Native copies below this are not told to the load monitor, one by one.
constexpr std::uint64_t kMinNotedBlock = 16 * kKiB;

constexpr std::size_t kMaxWaiting = 64;
constexpr std::size_t kStreamsIfBusy = 4;

/// A run's table.
constexpr std::size_t kMaxCopiesARun = BlockTable::kMaxEntries / 2;
constexpr std::uint64_t kMaxBytesARun = BlockTable::kMaxEntries / 2 * kMaxPiece;
/// Its first slice: about what all links of a node carry while the CPU writes the next one.
constexpr std::uint64_t kFirstSlice = 4 * kMiB;
constexpr std::size_t kFirstSliceCopies = 512;

/// Parts of a run: how its bytes are cut, and how many of them each GPU copies.
struct Cut {
  std::uint64_t piece = kMinPiece;
  std::vector<std::uint64_t> quotas;  ///< bytes by part; the last takes what is left
};

/// Calls visit(part, copy, offset, bytes) for every piece of the copies [first, last) that are of
/// `group`, in order.
template <typename Visit>
void for_each_piece(const Batch& batch, std::span<const std::int8_t> group_of, int group,
                    std::size_t first, std::size_t last, const Cut& cut, Visit&& visit) {
  std::size_t part = 0;
  std::uint64_t taken = 0;
  for (std::size_t i = first; i < last; ++i) {
    if (group_of[i] != group) continue;
    const std::uint64_t bytes = batch.bytes[i];
    for (std::uint64_t offset = 0; offset < bytes; offset += cut.piece) {
      while (part + 1 < cut.quotas.size() && taken >= cut.quotas[part]) {
        ++part;
        taken = 0;
      }
      const std::uint64_t now = std::min(cut.piece, bytes - offset);
      visit(part, i, offset, now);
      taken += now;
    }
  }
}

}  // namespace

BatchDispatcher::BatchDispatcher(const NodeSource& source, const Options& options, Devices& devices,
                                 ImportedMemories& imports, SharedMappings& shared,
                                 PeerProcesses& others, Counters& counters,
                                 TransferDispatcher& transfers)
    : source_(source),
      options_(options),
      devices_(devices),
      imports_(imports),
      others_(others),
      counters_(counters),
      transfers_(transfers),
      classifier_(source, devices, imports, shared, 0),
      blocks_(source.driver, devices, transfers.resources().events()),
      preparing_(kMaxWaiting) {}

// ---- what a batch is ----------------------------------------------------------------------------

int BatchDispatcher::find_group(Call& call, BlockRange& src, BlockRange& dst) {
  const auto known = std::ranges::find_if(call.groups, [&](const Group& group) {
    return group.src == src.memory && group.dst == dst.memory;
  });
  const auto group = static_cast<int>(known - call.groups.begin());
  if (known == call.groups.end()) {
    if (group >= kMaxGroups) return kNative;
    call.groups.push_back({src.memory, dst.memory});
  }
  src.groups |= std::uint64_t{1} << group;
  dst.groups |= std::uint64_t{1} << group;
  return group;
}

int BatchDispatcher::add_copy(Call& call, std::size_t i) {
  const Batch& batch = call.batch;
  const std::uint64_t bytes = batch.bytes[i];
  if (bytes == 0) return kNone;
  const CUdeviceptr dst = batch.dst_at(i);
  const CUdeviceptr src = batch.src_at(i);
  const CUdeviceptr low = std::min(dst, src);
  const CUdeviceptr high = std::max(dst, src);
  if (low != 0 && bytes > std::numeric_limits<CUdeviceptr>::max() - high)
    throw InvalidArgument(fmt::format("bytes are {}: no memory has so many", bytes));
  if (low != 0 && high - low < bytes)
    throw InvalidArgument(
        fmt::format("dst {} and src {} overlap", range_text(dst, bytes), range_text(src, bytes)));
  BlockRange& from = call.ranges.find("src", src, bytes, call.last_src);
  BlockRange& to = call.ranges.find("dst", dst, bytes, call.last_dst);
  const auto native = [&](NativeReason reason) {
    call.native.emplace_back(i, reason);
    return kNative;
  };
  bool passes = false;
  const auto check_end = [&](const char* argument, const BlockRange& range, CUdeviceptr address) {
    // Pageable memory was looked at just now.
    if (range.reason == NativeReason::pageable || bytes <= range.end - address) return;
    classifier_.checked_info(argument, address, bytes);
    passes = true;
  };
  check_end("src", from, src);
  check_end("dst", to, dst);
  if (bytes >= options_.batch_copy_size) {
    call.large.push_back(i);
    return kLarge;
  }
  if (from.reason) return native(*from.reason);
  if (to.reason) return native(*to.reason);
  if (passes) return native(NativeReason::several_allocations);
  if (from.memory == to.memory || (from.memory.is_host() && to.memory.is_host()))
    return native(NativeReason::same_memory);
  const int group = find_group(call, from, to);
  if (group < 0) return native(NativeReason::no_gain);
  Group& all = call.groups[static_cast<std::size_t>(group)];
  ++all.count;
  all.bytes += bytes;
  return group;
}

void BatchDispatcher::classify(Call& call) {
  const Batch& batch = call.batch;
  if (batch.dst == nullptr || batch.src == nullptr || batch.bytes == nullptr)
    throw InvalidArgument("dst, src or bytes of the batch is null");
  call.group_of.resize(batch.count);
  for (std::size_t i = 0; i < batch.count;) {
    try {
      call.group_of[i] = static_cast<std::int8_t>(add_copy(call, i));
    } catch (const InvalidArgument& error) {
      throw InvalidArgument(fmt::format("copy {}: {}", i, error.what()));
    }
    const std::int8_t group = call.group_of[i++];
    if (group < 0) continue;
    // Most copies after it lie in the same two allocations: a short loop for them.
    const CUdeviceptr dst = call.last_dst->begin;
    const CUdeviceptr src = call.last_src->begin;
    const std::uint64_t dst_size = call.last_dst->end - dst;
    const std::uint64_t src_size = call.last_src->end - src;
    const std::size_t first = i;
    std::uint64_t sum = 0;
    for (; i < batch.count; ++i) {
      const std::uint64_t bytes = batch.bytes[i];
      const std::uint64_t to = batch.dst_at(i) - dst;
      const std::uint64_t from = batch.src_at(i) - src;
      if (bytes == 0 || bytes >= options_.batch_copy_size || to >= dst_size ||
          bytes > dst_size - to || from >= src_size || bytes > src_size - from)
        break;
      call.group_of[i] = group;
      sum += bytes;
    }
    Group& all = call.groups[static_cast<std::size_t>(group)];
    all.count += i - first;
    all.bytes += sum;
  }
}

bool BatchDispatcher::is_captured(CUstream stream) const {
  if (driver().stream_is_capturing == nullptr) return false;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return driver().stream_is_capturing(stream, &status) != CUDA_SUCCESS ||
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

std::optional<NativeReason> BatchDispatcher::look_at_stream(Call& call) {
  const CUstream stream = call.batch.stream;
  if (is_captured(stream)) return NativeReason::capturing;
  if (devices_.lost()) return NativeReason::context_reset;
  call.caller = classifier_.caller_of(stream);
  call.caller_gpu = devices_.gpu_of(call.caller.context);
  if (call.caller_gpu < 0)
    return devices_.any_reset() ? NativeReason::context_reset : NativeReason::other_context;
  return std::nullopt;
}

// ---- which GPUs copy ----------------------------------------------------------------------------

int BatchDispatcher::gpu_of(const Route& route, const Group& group, int caller_gpu) const {
  if (route.kind == RouteKind::via_gpu) return route.via.index;
  if (!group.src.is_gpu()) return group.dst.index;
  if (!group.dst.is_gpu()) return group.src.index;
  return caller_gpu == group.dst.index ? group.dst.index : group.src.index;
}

std::set<int> BatchDispatcher::peers_of(const Group& group, int gpu) const {
  std::set<int> peers;
  for (const MemoryId end : {group.src, group.dst})
    if (end.is_gpu() && end.index != gpu) peers.insert(end.index);
  return peers;
}

void BatchDispatcher::request(int gpu, const Group& group, std::size_t streams) {
  const std::set<int> peers = peers_of(group, gpu);
  {
    const std::lock_guard lock(mutex_);
    if (requested_.contains({gpu, peers}) || !blocks_.may_prepare(gpu)) return;
    requested_.insert({gpu, peers});
  }
  const auto done = [this, key = std::pair(gpu, peers)] {
    const std::lock_guard lock(mutex_);
    requested_.erase(key);
  };
  const bool is_added = preparing_.add([=, this] {
    try {
      const RelaxedCapture relaxed(driver());
      blocks_.prepare(gpu, peers, streams);
    } catch (const std::exception& error) {
      log_info("GPU {} copies no blocks of batches: {}", gpu, error.what());
    }
    done();
  });
  if (!is_added) done();
}

bool BatchDispatcher::reaches(Call& call, int group, int gpu) {
  const CUcontext context = devices_.context_if_active(gpu);
  if (context == nullptr) return false;
  ContextGuard guard(driver());
  const Group& ends = call.groups[static_cast<std::size_t>(group)];
  const bool reaches_peers =
      std::ranges::all_of(peers_of(ends, gpu), [&](int peer) { return blocks_.ready(gpu, peer); });
  return std::ranges::all_of(call.ranges.all(), [&](BlockRange& range) {
    return (range.groups >> group & 1) == 0 ||
           call.ranges.distance(range, gpu, context, reaches_peers, guard).has_value();
  });
}

bool BatchDispatcher::is_usable(Call& call, int group, int gpu) {
  const Group& ends = call.groups[static_cast<std::size_t>(group)];
  const std::set<int> peers = peers_of(ends, gpu);
  const auto is_ready = [&] {
    return blocks_.ready(gpu, -1) &&
           std::ranges::all_of(peers, [&](int peer) { return blocks_.ready(gpu, peer); });
  };
  if (devices_.has_failed(gpu)) return false;
  if (!is_ready()) {
    request(gpu, ends, 1);
    if (options_.prepare == PrepareMode::wait) preparing_.wait();
    if (!is_ready()) return false;
  }
  if (!devices_.alive(gpu)) return false;
  import_ranges(call, group, gpu);
  return reaches(call, group, gpu);
}

void BatchDispatcher::import_ranges(Call& call, int group, int gpu) {
  const CUcontext context = devices_.context_if_active(gpu);
  bool is_any = false;
  for (BlockRange& range : call.ranges.all()) {
    const std::shared_ptr<ImportedMemory>& memory = range.info.import;
    if ((range.groups >> group & 1) == 0 || memory == nullptr || range.info.context == context ||
        memory->address_in(gpu, context, range.begin) || !memory->may_import(gpu))
      continue;
    is_any = preparing_.add([this, memory, gpu] {
      const RelaxedCapture relaxed(driver());
      try {
        imports_.import_into(*memory, gpu);
      } catch (const std::exception& error) {
        log_info("GPU {} copies no blocks of another process's memory: {}", gpu, error.what());
      }
    }) || is_any;
  }
  if (is_any && options_.prepare == PrepareMode::wait) preparing_.wait();
}

BatchDispatcher::Decision BatchDispatcher::natively(NativeReason reason) const {
  Decision decision;
  decision.reason = reason;
  return decision;
}

bool BatchDispatcher::may_gain(const Group& group) const {
  const auto link = node().find_link(group.src, group.dst);
  if (options_.batch_blocks == 0 || !link) return false;
  const double gbps = node().links[static_cast<std::size_t>(*link)].gbps;
  const Costs& costs = node().costs;
  const double limit_us = kMinGain * native_batch_us(costs, group.count, group.bytes, gbps);
  const double all_gbps = gbps * static_cast<double>(node().gpus.size());
  return kernel_batch_us(costs, 0, group.bytes, gbps) <= limit_us ||
         kernel_batch_us(costs, 1, group.bytes, all_gbps) <= limit_us;
}

BatchDispatcher::Decision BatchDispatcher::decide(Call& call, int group, std::uint64_t without) {
  const Group& ends = call.groups[static_cast<std::size_t>(group)];
  const auto link = node().find_link(ends.src, ends.dst);
  if (options_.batch_blocks == 0 || !link) return natively(NativeReason::no_gain);
  const Link& own = node().links[static_cast<std::size_t>(*link)];
  if (own.type == LinkType::bounce) return natively(NativeReason::unreachable);
  // Nothing is prepared for batches that kernels would not carry faster.
  if (!may_gain(ends)) return natively(NativeReason::no_gain);
  const Costs& costs = node().costs;
  const double native_us = native_batch_us(costs, ends.count, ends.bytes, own.gbps);
  const double own_us = kernel_batch_us(costs, 0, ends.bytes, own.gbps);

  Planner& planner = transfers_.planner();
  const std::vector<Request> requests{{ends.src, ends.dst, kBatchShareBytes}};
  const Route direct{RouteKind::direct, {}, {*link}};
  const int home = gpu_of(direct, ends, call.caller_gpu);
  if (!is_usable(call, group, home))
    return natively(blocks_.ready(home, -1) ? NativeReason::unreachable : NativeReason::not_ready);

  TransferPlan alone;
  alone.request = {ends.src, ends.dst, ends.bytes};
  alone.routes.push_back({.route = direct, .bytes = ends.bytes, .gbps = own.gbps});
  Decision best;
  best.plan.native_us = native_us;
  best.plan.predicted_us = own_us;
  best.plan.transfers.push_back(alone);

  const bool has_host = ends.src.is_host() || ends.dst.is_host();
  bool is_settled = !has_host;
  while (!is_settled) {
    const auto shares = planner.serve(requests, without, call.around.concurrent);
    const TransferPlan& plan = shares->plan.transfers.front();
    is_settled = true;
    double gbps = 0;
    std::uint64_t bytes = 0;
    int others = 0;
    for (const RouteShare& share : plan.routes) {
      if (share.route.kind == RouteKind::via_host) continue;
      gbps += share.gbps;
      bytes += share.bytes;
      others += gpu_of(share.route, ends, call.caller_gpu) != call.caller_gpu ? 1 : 0;
    }
    if (bytes == 0) break;
    const double all_us = kernel_batch_us(costs, others, ends.bytes, gbps);
    if (all_us >= best.plan.predicted_us) break;
    const Tolerance allowed = tolerance(all_us, native_us, others);
    for (const RouteShare& share : plan.routes) {
      if (share.route.kind != RouteKind::via_gpu) continue;
      const bool is_loaded = transfers_.load().is_on() &&
                             transfers_.load().is_loaded(share.route, allowed, call.around.look);
      if (!is_loaded && is_usable(call, group, share.route.via.index)) continue;
      without |= planner.bit(share.route.via);
      is_settled = false;
      counters_.count_left_out(is_loaded ? ExclusionReason::loaded : ExclusionReason::not_ready);
    }
    if (!is_settled) continue;
    TransferPlan all;
    all.request = alone.request;
    std::uint64_t offset = 0;
    for (const RouteShare& share : plan.routes) {
      if (share.route.kind == RouteKind::via_host) continue;
      const double part = static_cast<double>(share.bytes) / static_cast<double>(bytes);
      const auto own_bytes =
          static_cast<std::uint64_t>(part * static_cast<double>(ends.bytes) + 0.5);
      all.routes.push_back({.route = share.route,
                            .offset = offset,
                            .bytes = std::min(own_bytes, ends.bytes - offset),
                            .gbps = share.gbps});
      offset += all.routes.back().bytes;
    }
    all.routes.back().bytes += ends.bytes - offset;
    best.plan.transfers = {std::move(all)};
    best.plan.predicted_us = all_us;
    best.plan.limit_gbps = shares->plan.limit_gbps;
  }
  if (best.plan.predicted_us > kMinGain * native_us) return natively(NativeReason::no_gain);
  return best;
}

// ---- issuing ------------------------------------------------------------------------------------

void BatchDispatcher::add_native(Call& call, int group, const Copies& copies, NativeReason reason) {
  for (std::size_t i = copies.first; i < copies.last; ++i)
    if (call.group_of[i] == group) call.native.emplace_back(i, reason);
}

BatchDispatcher::Copies BatchDispatcher::next_copies(const Call& call, int group, std::size_t first,
                                                     std::size_t max_count,
                                                     std::uint64_t max_bytes) {
  Copies copies{first, first};
  for (; copies.last < call.group_of.size() && copies.count < max_count && copies.bytes < max_bytes;
       ++copies.last) {
    if (call.group_of[copies.last] != group) continue;
    ++copies.count;
    copies.bytes += call.batch.bytes[copies.last];
  }
  return copies;
}

void BatchDispatcher::run(Call& call, int group, const Decision& decision, bool& midway) {
  // A run has a table that fits.
  for (std::size_t first = 0; first < call.group_of.size();) {
    const Copies copies = next_copies(call, group, first, kMaxCopiesARun, kMaxBytesARun);
    if (copies.count > 0) run_part(call, group, decision, copies, midway);
    first = copies.last;
  }
}

std::unique_ptr<BlockRun> BatchDispatcher::lease(Call& call, int group, Decision& decision,
                                                 std::size_t copies, std::uint64_t bytes,
                                                 std::uint64_t& piece) {
  const Group& ends = call.groups[static_cast<std::size_t>(group)];
  std::uint64_t without = 0;
  while (!decision.native()) {
    const TransferPlan& plan = decision.plan.transfers.front();
    std::vector<int> gpus;
    for (const RouteShare& share : plan.routes)
      gpus.push_back(gpu_of(share.route, ends, call.caller_gpu));
    const std::uint64_t teams = thread_blocks_of(ends) * kTeams * gpus.size();
    piece = kMinPiece;
    while (piece < kMaxPiece && bytes / (teams * kEntriesATeam) > piece) piece *= 2;
    int busy = -1;
    auto run = blocks_.lease(call.caller, call.caller_gpu, gpus, copies + bytes / piece, busy);
    if (run != nullptr) return run;
    counters_.count_left_out(ExclusionReason::busy);
    if (busy >= 0) request(busy, ends, kStreamsIfBusy);
    if (busy < 0 || gpus.size() == 1) {
      decision = natively(NativeReason::busy);
    } else {
      without |= transfers_.planner().bit(MemoryId::gpu(busy));
      decision = decide(call, group, without);
    }
  }
  return nullptr;
}

unsigned BatchDispatcher::thread_blocks_of(const Group& group) const {
  const bool has_host = group.src.is_host() || group.dst.is_host();
  return static_cast<unsigned>(options_.batch_blocks) * (has_host ? 1 : 2);
}

void BatchDispatcher::run_part(Call& call, int group, Decision decision, const Copies& copies,
                               bool& midway) {
  const Group& ends = call.groups[static_cast<std::size_t>(group)];
  const Batch& batch = call.batch;
  std::unique_ptr<BlockRun> run;
  std::uint64_t piece = kMinPiece;
  try {
    run = lease(call, group, decision, copies.count, copies.bytes, piece);
  } catch (const DriverError& error) {
    log_info("a batch is copied natively: {}", error.what());
    decision = natively(NativeReason::driver_error);
  }
  if (run == nullptr) {
    add_native(call, group, copies, decision.reason);
    return;
  }

  Plan issued = std::move(decision.plan);
  TransferPlan& plan = issued.transfers.front();
  const std::size_t parts = plan.routes.size();
  std::vector<double> shares;
  for (RouteShare& share : plan.routes) {
    shares.push_back(static_cast<double>(share.bytes) / static_cast<double>(plan.request.bytes));
    share.bytes = static_cast<std::uint64_t>(shares.back() * static_cast<double>(copies.bytes));
  }
  plan.request.bytes = copies.bytes;
  std::vector<int> gpus;
  for (const RouteShare& share : plan.routes)
    gpus.push_back(gpu_of(share.route, ends, call.caller_gpu));
  const bool has_distances = std::ranges::any_of(call.ranges.all(), [&](const BlockRange& range) {
    return (range.groups >> group & 1) != 0 && std::ranges::any_of(gpus, [&](int gpu) {
             const auto& known = range.distances[static_cast<std::size_t>(gpu)];
             return known && known->value_or(0) != 0;
           });
  });

  others_.started(plan.request, issued.predicted_us);
  transfers_.note_plan(call.around, static_cast<std::size_t>(group), issued);
  LoadMonitor::OwnIssue own(transfers_.load(), issued, call.around.look.first_stream());
  /// What has to be copied natively: a part of a slice.
  struct Failed {
    Copies slice;
    Cut cut;
    std::size_t part;
  };
  std::vector<Failed> failed;
  std::vector<std::uint64_t> copied(parts);
  std::vector<std::size_t> entries(parts);
  std::size_t table = 0;  // entries that are written
  const bool is_forked = run->fork();
  // The table is written in slices, each three times as large as the one before: the GPUs copy one
  // while the CPU writes the next.
  std::uint64_t slice_bytes = kFirstSlice;
  std::size_t slice_count = kFirstSliceCopies;
  for (std::size_t first = copies.first; first < copies.last;) {
    const Copies slice = next_copies(call, group, first, slice_count, slice_bytes);
    first = std::min(slice.last, copies.last);
    slice_bytes *= 3;
    slice_count *= 3;
    Cut cut{piece, {}};
    for (const double share : shares)
      cut.quotas.push_back(static_cast<std::uint64_t>(share * static_cast<double>(slice.bytes)));
    std::vector<BlockPart> to_launch(parts);
    std::vector<std::uint64_t> part_bytes(parts);
    CopyBlock* const begin = run->entries() + table;
    CopyBlock* entry = begin;
    for_each_piece(
        batch, call.group_of, group, slice.first, first, cut,
        [&](std::size_t p, std::size_t i, std::uint64_t offset, std::uint64_t size) {
          CopyEnds at{batch.dst_at(i) + offset, batch.src_at(i) + offset};
          if (has_distances) [[unlikely]] {
            const auto gpu = static_cast<std::size_t>(gpus[p]);
            at.dst += call.ranges.find("dst", at.dst, size, call.last_dst).distances[gpu]->value();
            at.src += call.ranges.find("src", at.src, size, call.last_src).distances[gpu]->value();
          }
          *entry++ = {at, size, 0};
          ++to_launch[p].count;
          part_bytes[p] += size;
        });
    std::size_t at = table;
    table += static_cast<std::size_t>(entry - begin);
    for (std::size_t p = 0; p < parts; ++p) {
      BlockPart& part = to_launch[p];
      part.gpu = gpus[p];
      part.first = at;
      at += part.count;
      if (part.count == 0) continue;
      part.thread_blocks = static_cast<unsigned>(
          std::min<std::uint64_t>(thread_blocks_of(ends), (part.count + kTeams - 1) / kTeams));
      if (is_forked && run->launch(part)) {
        midway = true;
        copied[p] += part_bytes[p];
        entries[p] += part.count;
      } else {
        failed.push_back({{slice.first, first, slice.count, slice.bytes}, cut, p});
      }
    }
  }
  const bool is_any = std::ranges::any_of(copied, [](std::uint64_t each) { return each > 0; });
  own.end(is_any);
  if (is_forked) {
    const BlockRunResult result = run->end();
    if (!result.is_ordered) std::rethrow_exception(result.error);
    if (result.error != nullptr) {
      try {
        std::rethrow_exception(result.error);
      } catch (const std::exception& error) {
        log_info("blocks of a batch are copied natively: {}", error.what());
      }
    }
  }
  transfers_.resources().sequences().end(call.caller);
  for (std::size_t p = 0; p < parts; ++p) {
    plan.routes[p].bytes = copied[p];
    if (copied[p] > 0) counters_.count_blocks(plan, p, entries[p]);
  }
  if (is_any && transfers_.load().is_on()) transfers_.load().note_split(issued, call.around.look);
  // The same bytes once more, after all that was launched.
  for (const auto& [slice, cut, part] : failed)
    for_each_piece(batch, call.group_of, group, slice.first, slice.last, cut,
                   [&](std::size_t p, std::size_t i, std::uint64_t offset, std::uint64_t size) {
                     if (p == part) copy_one(batch, i, offset, size);
                   });
}

void BatchDispatcher::copy_one(const Batch& batch, std::size_t i, std::uint64_t offset,
                               std::uint64_t bytes) {
  const CUdeviceptr dst = batch.dst_at(i) + offset;
  const CUdeviceptr src = batch.src_at(i) + offset;
  const CUresult result = driver().memcpy_async(dst, src, bytes, batch.stream);
  if (result == CUDA_SUCCESS) [[likely]]
    return;
  const std::string message = fmt::format(
      "copy {}: cuMemcpyAsync failed: {}; dst {}, src {}", i, describe(driver(), result),
      allocation_text(driver(), dst, bytes), allocation_text(driver(), src, bytes));
  if (result == CUDA_ERROR_INVALID_VALUE) throw InvalidArgument(message);
  throw DriverError(message, static_cast<int>(result));
}

bool BatchDispatcher::copy_as_batch(Call& call) {
  const Batch& batch = call.batch;
  if (driver().memcpy_batch_async == nullptr || batch.stream == nullptr ||
      batch.stream == CU_STREAM_LEGACY)
    return false;
  std::vector<CUdeviceptr> dsts;
  std::vector<CUdeviceptr> srcs;
  std::vector<std::size_t> sizes;
  for (const auto& [i, reason] : call.native) {
    // Host memory that CUDA does not know, and memory without a place, are for single copies.
    if (reason == NativeReason::pageable || reason == NativeReason::managed) return false;
    dsts.push_back(batch.dst_at(i));
    srcs.push_back(batch.src_at(i));
    sizes.push_back(batch.bytes[i]);
  }
  if (sizes.size() < 2) return false;
  CUmemcpyAttributes attributes{};
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  std::size_t first = 0;
  // After a failure one by one: that names the copy, and what was copied may be copied again.
  return driver().memcpy_batch_async(dsts.data(), srcs.data(), sizes.data(), sizes.size(),
                                     &attributes, &first, 1, batch.stream) == CUDA_SUCCESS;
}

void BatchDispatcher::copy_natively(Call& call, bool in_capture) {
  const Batch& batch = call.batch;
  if (call.native.empty()) return;
  std::ranges::sort(call.native);
  for (const auto& [i, reason] : call.native)
    if (!in_capture && batch.bytes[i] >= kMinNotedBlock)
      transfers_.load().note_copy(batch.dst_at(i), batch.src_at(i), batch.bytes[i], batch.stream);
  if (in_capture || !copy_as_batch(call))
    for (const auto& [i, reason] : call.native) copy_one(batch, i, 0, batch.bytes[i]);
  for (const auto& [i, reason] : call.native) counters_.count_native_block(reason, batch.bytes[i]);
  transfers_.resources().sequences().end(batch.stream);
}

bool BatchDispatcher::carry(const Batch& batch, bool may_decline, bool& midway) {
  midway = false;
  if (batch.count == 0) return true;
  Call call(batch, source_, classifier_, devices_, imports_);
  classify(call);
  std::optional<NativeReason> reason;
  std::vector<Decision> decisions(call.groups.size());
  const auto decline = [&] {
    for (int g = 0; g < static_cast<int>(call.groups.size()); ++g) {
      const Group& group = call.groups[static_cast<std::size_t>(g)];
      counters_.count_declined_blocks(
          reason.value_or(decisions[static_cast<std::size_t>(g)].reason), group.count, group.bytes);
    }
    for (const auto& [i, why] : call.native) counters_.count_native_block(why, batch.bytes[i]);
    return false;
  };
  // Small batches cost the caller no more than this.
  const bool is_any =
      std::ranges::any_of(call.groups, [&](const Group& group) { return may_gain(group); });
  if (may_decline && !is_any && call.large.empty()) return decline();
  try {
    if (!is_any && is_captured(batch.stream)) reason = NativeReason::capturing;
    if (is_any) reason = look_at_stream(call);
    if (is_any && !reason) {
      const RelaxedCapture relaxed(driver());
      std::vector<Request> requests;
      for (const Group& group : call.groups)
        requests.push_back({group.src, group.dst, group.bytes});
      const std::vector<std::uintptr_t> streams(
          requests.size(), LoadMonitor::stream_key(batch.stream, call.caller_gpu));
      call.around = transfers_.look_around(requests, streams);
      for (std::size_t g = 0; g < decisions.size(); ++g)
        decisions[g] = decide(call, static_cast<int>(g), 0);
    }
  } catch (const DriverError& error) {
    log_info("a batch is copied natively: {}", error.what());
    reason = NativeReason::driver_error;
  }
  const bool is_native = reason.has_value() || std::ranges::all_of(decisions, &Decision::native);
  const bool in_capture = reason == NativeReason::capturing;
  if (may_decline && is_native && (call.large.empty() || in_capture)) return decline();

  counters_.count_batch();
  if (!call.large.empty()) {
    std::vector<Transfer> large;
    for (const std::size_t i : call.large)
      large.push_back({batch.dst_at(i), batch.src_at(i), batch.bytes[i], batch.stream});
    transfers_.issue_group(large);
    counters_.count_large_blocks(large.size());
    midway = true;
  }
  for (int g = 0; g < static_cast<int>(call.groups.size()); ++g) {
    const Decision& decision = decisions[static_cast<std::size_t>(g)];
    if (reason || decision.native()) {
      add_native(call, g, {0, batch.count}, reason.value_or(decision.reason));
    } else {
      const RelaxedCapture relaxed(driver());
      run(call, g, decision, midway);
    }
  }
  midway = midway || !call.native.empty();
  copy_natively(call, in_capture);
  return true;
}

void BatchDispatcher::issue(const Batch& batch) {
  bool midway = false;
  carry(batch, false, midway);
}

bool BatchDispatcher::try_issue(const Batch& batch, bool& midway) {
  return carry(batch, true, midway);
}

void BatchDispatcher::prepare(const std::vector<Request>& requests) {
  for (const Request& request : requests) {
    const Group group{request.src, request.dst};
    std::set<int> gpus;
    for (const MemoryId end : {request.src, request.dst})
      if (end.is_gpu()) {
        devices_.context_for_program(end.index);
        gpus.insert(end.index);
      }
    if (request.src.is_host() || request.dst.is_host()) {
      const auto plan = transfers_.planner().plan(
          std::vector{Request{request.src, request.dst, kBatchShareBytes}}, 0);
      for (const RouteShare& share : plan->plan.transfers.front().routes)
        if (share.route.kind == RouteKind::via_gpu) gpus.insert(share.route.via.index);
    }
    for (const int gpu : gpus) {
      try {
        blocks_.prepare(gpu, peers_of(group, gpu), 1);
      } catch (const StagingRefused& refused) {
        log_info("GPU {} copies no blocks of batches: {}", gpu, refused.what());
      }
    }
  }
}

}  // namespace polypath
