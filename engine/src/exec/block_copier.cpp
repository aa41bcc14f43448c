#include "exec/block_copier.hpp"

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "driver/check.hpp"
#include "driver/context_guard.hpp"
#include "exec/kernels/images.hpp"

namespace polypath {
namespace {

constexpr std::size_t kMaxBatchStreams = 4;    ///< a GPU
constexpr std::size_t kMaxBatches = 64;        ///< queued on a stream
constexpr int kOperationsABatch = 3;           ///< a wait, a kernel, a record
constexpr std::size_t kBatchEventsAhead = 16;  ///< a GPU

}  // namespace

// ---- leases -------------------------------------------------------------------------------------

void BlockLease::swap(BlockLease& other) noexcept {
  std::swap(owner_, other.owner_);
  std::swap(ticket_, other.ticket_);
  std::swap(streams_, other.streams_);
  std::swap(range_, other.range_);
  std::swap(has_range_, other.has_range_);
  std::swap(is_left_, other.is_left_);
}

BlockLease::~BlockLease() {
  if (owner_ == nullptr) return;
  if (has_range_ && !is_left_) owner_->table_.release(range_, nullptr);
  const std::lock_guard lock(owner_->mutex_);
  for (const auto& [gpu, stream] : streams_) stream->lent = false;
}

// ---- preparation --------------------------------------------------------------------------------

BlockCopier::BlockCopier(std::shared_ptr<const CudaDriver> driver, Devices& devices,
                         EventPool& events)
    : driver_(std::move(driver)), devices_(devices), events_(events), table_(driver_, devices) {}

BlockCopier::~BlockCopier() {
  for (auto& [gpu, state] : gpus_)
    for (auto& stream : state.streams)
      if (devices_.alive(gpu)) POLYPATH_WARN(*driver_, stream_destroy(stream->stream));
}

void BlockCopier::prepare(int gpu, const std::set<int>& reached, std::size_t streams) {
  const std::lock_guard preparing(preparing_);
  try {
    const CUcontext context = devices_.context(gpu);
    ContextGuard guard(*driver_);
    guard.use(context);
    const auto state = [&]() -> Gpu& {
      const std::lock_guard lock(mutex_);
      return gpus_[gpu];
    };
    Gpu& known = state();  // only prepare() changes what it reads without the lock
    if (known.kernel == nullptr) {
      auto module = KernelModule::of(*driver_, context, copy_blocks_image());
      CUfunction const kernel = module->function("polypath_copy_blocks");
      const std::lock_guard lock(mutex_);
      known.module = std::move(module);
      known.kernel = kernel;
    }
    table_.make(gpu);
    events_.reserve(gpu, kBatchEventsAhead);
    for (const int other : reached) {
      if (other != gpu) devices_.enable_peer_access(gpu, other);
      const std::lock_guard lock(mutex_);
      known.reached.insert(other);
    }
    while (known.streams.size() < std::min(streams, kMaxBatchStreams)) {
      auto stream = std::make_unique<Channel>();
      stream->gpu = gpu;
      stream->context = context;
      POLYPATH_CHECK(*driver_, stream_create(&stream->stream, CU_STREAM_NON_BLOCKING));
      const std::lock_guard lock(mutex_);
      known.streams.push_back(std::move(stream));
    }
    const std::lock_guard lock(mutex_);
    known.has_failed = false;
  } catch (...) {
    const std::lock_guard lock(mutex_);
    Gpu& known = gpus_[gpu];
    known.has_failed = true;
    known.retry.failed();
    throw;
  }
}

bool BlockCopier::ready(int gpu, int reached) {
  const std::lock_guard lock(mutex_);
  const auto known = gpus_.find(gpu);
  return known != gpus_.end() && !known->second.streams.empty() &&
         (reached < 0 || reached == gpu || known->second.reached.contains(reached));
}

bool BlockCopier::may_prepare(int gpu) {
  const std::lock_guard lock(mutex_);
  Gpu& known = gpus_[gpu];
  return !known.has_failed || known.retry.due();
}

// ---- runs ---------------------------------------------------------------------------------------

Channel* BlockCopier::find_stream(Gpu& gpu, TransferState& ticket) {
  Channel* free = nullptr;
  for (const auto& candidate : gpu.streams) {
    Channel& stream = *candidate;
    if (stream.broken || stream.lent) continue;
    stream.queue.prune(*driver_);
    const bool has_room = stream.queue.size() < kMaxBatches;
    if (!stream.queue.empty() && stream.queue.ticket().caller() == ticket.caller()) {
      // A caller's stream that is held back fills one, and leaves the others to others.
      if (has_room) return &stream;
      if (!stream.queue.oldest().started(*driver_)) return nullptr;
      continue;
    }
    if (free != nullptr || !has_room) continue;
    if (stream.queue.empty() || stream.queue.ticket().started(*driver_)) free = &stream;
  }
  return free;
}

std::optional<BlockLease> BlockCopier::lease(const CallerStream& caller, int caller_gpu,
                                             std::span<const int> gpus, std::size_t entries,
                                             int& busy) {
  BlockLease lease;
  lease.ticket_ =
      std::make_shared<TransferState>(caller, std::make_shared<PooledEvent>(events_, caller_gpu));
  {
    const std::lock_guard lock(mutex_);
    for (const int gpu : gpus) {
      if (gpu == caller_gpu || lease.streams_.contains(gpu)) continue;
      Channel* const stream = find_stream(gpus_[gpu], *lease.ticket_);
      if (stream == nullptr) {
        for (const auto& [other, lent] : lease.streams_) lent->lent = false;
        busy = gpu;
        return std::nullopt;
      }
      stream->lent = true;
      lease.streams_[gpu] = stream;
    }
    lease.owner_ = this;
  }
  const auto range = table_.reserve(entries);
  if (!range) {
    busy = -1;
    return std::nullopt;
  }
  lease.range_ = *range;
  lease.has_range_ = true;
  return lease;
}

void BlockCopier::launch(const BlockLease& lease, const BlockPart& part, CUfunction kernel,
                         CUstream stream) const {
  CopyBlocksArgs args{lease.range_.entries + part.first, static_cast<std::uint32_t>(part.count)};
  void* parameters = &args;
  POLYPATH_CHECK(*driver_, launch_kernel(kernel, part.thread_blocks, 1, 1, kCopyBlocksThreads, 1, 1,
                                         0, stream, &parameters, nullptr));
}

BlockRunResult BlockCopier::run(BlockLease& lease, int caller_gpu,
                                std::span<BlockPart> parts) noexcept {
  BlockRunResult result;
  const auto attempt = [&](auto&& body) {
    try {
      body();
      return true;
    } catch (...) {
      if (result.error == nullptr) result.error = std::current_exception();
      return false;
    }
  };
  TransferState& ticket = *lease.ticket_;
  const CallerStream& caller = ticket.caller();
  std::map<int, CUfunction> kernels;
  std::map<int, std::shared_ptr<PooledEvent>> ends;  // of other GPUs
  std::shared_ptr<PooledEvent> end;                  // of all
  std::optional<ContextGuard> guard;
  const bool is_forked = attempt([&] {
    end = std::make_shared<PooledEvent>(events_, caller_gpu);
    for (const auto& [gpu, stream] : lease.streams_)
      ends[gpu] = std::make_shared<PooledEvent>(events_, gpu);
    {
      const std::lock_guard lock(mutex_);
      for (const BlockPart& part : parts) kernels[part.gpu] = gpus_[part.gpu].kernel;
    }
    guard.emplace(*driver_);
    guard->use(caller.context);
    if (!lease.streams_.empty()) ticket.record(*driver_);
  });
  if (!is_forked) return result;

  // The caller's own part begins at once, while the others are launched.
  bool is_left = false;
  for (BlockPart& part : parts) {
    if (part.gpu != caller_gpu) continue;
    part.is_issued = attempt([&] { launch(lease, part, kernels[part.gpu], caller.stream); });
    result.issued = result.issued || part.is_issued;
  }
  for (const auto& [gpu, stream] : lease.streams_) {
    bool is_open = attempt([&] {
      guard->use(stream->context);
      POLYPATH_CHECK(*driver_, stream_wait_event(stream->stream, ticket.fork(), 0));
    });
    bool has_work = false;
    for (BlockPart& part : parts) {
      if (part.gpu != gpu || !is_open) continue;
      part.is_issued = attempt([&] { launch(lease, part, kernels[gpu], stream->stream); });
      has_work = has_work || part.is_issued;
    }
    result.issued = result.issued || has_work;
    // After a failure, too: a fork that a later run waits for in vain would hold it back.
    const CUevent own_end = ends[gpu]->get();
    const bool is_ended = try_twice([&] {
      return attempt([&] {
        guard->use(stream->context);
        POLYPATH_CHECK(*driver_, event_record(own_end, stream->stream));
      });
    });
    const bool is_joined =
        is_ended && try_twice([&] {
          return attempt([&] {
            guard->use(caller.context);
            POLYPATH_CHECK(*driver_, stream_wait_event(caller.stream, own_end, 0));
          });
        });
    if (!is_ended || !is_open) stream->broken = true;
    if (!is_open || !is_joined || result.error != nullptr) {
      const CUresult failure = persistent_error(*driver_, stream->stream);
      if (failure != CUDA_SUCCESS && devices_.alive(gpu)) devices_.mark_failed(gpu, failure);
      // What a failed context holds will not run any more.
      if (has_work && !is_joined && failure == CUDA_SUCCESS &&
          driver_->stream_query(stream->stream) != CUDA_SUCCESS) {
        result.is_ordered = false;
        is_left = true;
      }
    }
    const std::lock_guard lock(mutex_);
    if (is_ended) stream->queue.add(lease.ticket_, ends[gpu], kOperationsABatch);
  }
  if (result.is_ordered) ticket.joined();
  const bool is_recorded = try_twice([&] {
    return attempt([&] {
      guard->use(caller.context);
      POLYPATH_CHECK(*driver_, event_record(end->get(), caller.stream));
    });
  });
  lease.is_left_ = true;
  if (is_recorded && !is_left) lease.owner_->table_.release(lease.range_, std::move(end));
  return result;
}

}  // namespace polypath
