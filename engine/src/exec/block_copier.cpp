#include "exec/block_copier.hpp"

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "driver/check.hpp"
#include "driver/context_guard.hpp"
#include "exec/failed_run.hpp"
#include "exec/kernels/images.hpp"

namespace polypath {
namespace {

constexpr const char* kKernel = "polypath_copy_blocks";
constexpr std::size_t kMaxBatchStreams = 4;    ///< a GPU
constexpr std::size_t kMaxBatches = 64;        ///< queued on a stream
constexpr int kOperationsABatch = 3;           ///< a wait, a kernel, a record
constexpr std::size_t kBatchEventsAhead = 16;  ///< a GPU

}  // namespace

// ---- preparation --------------------------------------------------------------------------------

BlockCopier::BlockCopier(std::shared_ptr<const CudaDriver> driver, Devices& devices,
                         EventPool& events)
    : driver_(std::move(driver)), devices_(devices), events_(events), table_(driver_, devices) {}

BlockCopier::~BlockCopier() {
  for (auto& [gpu, state] : gpus_)
    for (auto& stream : state.streams)
      if (devices_.alive(gpu)) POLYPATH_WARN(*driver_, stream_destroy(stream->stream));
}

std::shared_ptr<const KernelModule> BlockCopier::load_kernel(const CudaDriver& driver,
                                                             CUcontext context) {
  auto module = KernelModule::load(driver, context, copy_blocks_image());
  // What is loaded lazily is loaded by this.
  static_cast<void>(module->function(kKernel));
  return module;
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
      auto module = load_kernel(*driver_, context);
      CUfunction const kernel = module->function(kKernel);
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

std::unique_ptr<BlockRun> BlockCopier::lease(const CallerStream& caller, int caller_gpu,
                                             std::span<const int> gpus, std::size_t entries,
                                             int& busy) {
  std::unique_ptr<BlockRun> run(new BlockRun(*this, caller, caller_gpu));
  for (const int gpu : gpus)
    if (gpu != caller_gpu && !run->lanes_.contains(gpu))
      run->lanes_[gpu] = {.end = std::make_shared<PooledEvent>(events_, gpu)};
  {
    const std::lock_guard lock(mutex_);
    for (const int gpu : gpus) run->kernels_[gpu] = gpus_[gpu].kernel;
    for (auto& [gpu, lane] : run->lanes_) {
      Channel* const stream = find_stream(gpus_[gpu], *run->ticket_);
      if (stream == nullptr) {
        busy = gpu;
        break;
      }
      stream->lent = true;
      lane.stream = stream;
    }
  }
  if (std::ranges::any_of(run->lanes_, [](const auto& lane) { return !lane.second.stream; }))
    return nullptr;
  const auto range = table_.reserve(entries);
  if (!range) {
    busy = -1;
    return nullptr;
  }
  run->range_ = *range;
  run->has_range_ = true;
  return run;
}

BlockRun::BlockRun(BlockCopier& owner, const CallerStream& caller, int caller_gpu)
    : owner_(owner),
      ticket_(std::make_shared<TransferState>(
          caller, std::make_shared<PooledEvent>(owner.events_, caller_gpu))),
      caller_gpu_(caller_gpu),
      end_(std::make_shared<PooledEvent>(owner.events_, caller_gpu)) {}

BlockRun::~BlockRun() {
  if (is_forked_ && !has_ended_) end();
  if (has_range_ && !is_forked_) owner_.table_.release(range_, nullptr);
  const std::lock_guard lock(owner_.mutex_);
  for (auto& [gpu, lane] : lanes_)
    if (lane.stream != nullptr) lane.stream->lent = false;
}

template <typename Body>
bool BlockRun::attempt(Body&& body) noexcept {
  try {
    body();
    return true;
  } catch (...) {
    if (result_.error == nullptr) result_.error = std::current_exception();
    return false;
  }
}

bool BlockRun::fork() noexcept {
  const CudaDriver& driver = *owner_.driver_;
  const CallerStream& caller = ticket_->caller();
  is_forked_ = attempt([&] {
    guard_.emplace(driver);
    guard_->use(caller.context);
    if (!lanes_.empty()) ticket_->record(driver);
  });
  return is_forked_;
}

bool BlockRun::launch(const BlockPart& part) noexcept {
  const CudaDriver& driver = *owner_.driver_;
  const auto lane = lanes_.find(part.gpu);
  const bool is_own = lane == lanes_.end();
  if (!is_own && !lane->second.is_open) {
    lane->second.is_open = attempt([&] {
      guard_->use(lane->second.stream->context);
      POLYPATH_CHECK(driver, stream_wait_event(lane->second.stream->stream, ticket_->fork(), 0));
    });
    if (!lane->second.is_open) return false;
  }
  const bool is_launched = attempt([&] {
    guard_->use(is_own ? ticket_->caller().context : lane->second.stream->context);
    CopyBlocksArgs args{range_.entries + part.first, static_cast<std::uint32_t>(part.count)};
    void* parameters = &args;
    POLYPATH_CHECK(
        driver, launch_kernel(kernels_[part.gpu], part.thread_blocks, 1, 1, kCopyBlocksThreads, 1,
                              1, 0, is_own ? ticket_->caller().stream : lane->second.stream->stream,
                              &parameters, nullptr));
  });
  if (!is_own) lane->second.has_work = lane->second.has_work || is_launched;
  return is_launched;
}

void BlockRun::end_lane(int gpu, Lane& lane) {
  const CudaDriver& driver = *owner_.driver_;
  const CallerStream& caller = ticket_->caller();
  if (!lane.is_open) return;
  const bool is_ended = try_twice([&] {
    return attempt([&] {
      guard_->use(lane.stream->context);
      POLYPATH_CHECK(driver, event_record(lane.end->get(), lane.stream->stream));
    });
  });
  const bool is_joined =
      is_ended && try_twice([&] {
        return attempt([&] {
          guard_->use(caller.context);
          POLYPATH_CHECK(driver, stream_wait_event(caller.stream, lane.end->get(), 0));
        });
      });
  if (result_.error != nullptr) {
    const CUresult failure = persistent_error(driver, lane.stream->stream);
    if (failure != CUDA_SUCCESS && owner_.devices_.alive(gpu))
      owner_.devices_.mark_failed(gpu, failure);
    // What a failed context holds will not run any more.
    if (lane.has_work && !is_joined && failure == CUDA_SUCCESS &&
        driver.stream_query(lane.stream->stream) != CUDA_SUCCESS)
      result_.is_ordered = false;
  }
  const std::lock_guard lock(owner_.mutex_);
  if (is_ended)
    lane.stream->queue.add(ticket_, lane.end, kOperationsABatch);
  else
    lane.stream->broken = true;
}

BlockRunResult BlockRun::end() noexcept {
  has_ended_ = true;
  for (auto& [gpu, lane] : lanes_) end_lane(gpu, lane);
  if (result_.is_ordered) ticket_->joined();
  const bool is_recorded = try_twice([&] {
    return attempt([&] {
      guard_->use(ticket_->caller().context);
      POLYPATH_CHECK(*owner_.driver_, event_record(end_->get(), ticket_->caller().stream));
    });
  });
  // Else kernels may still read the range.
  if (is_recorded && result_.is_ordered) owner_.table_.release(range_, std::move(end_));
  guard_.reset();
  return result_;
}

}  // namespace polypath
